"""What `tidegate serve` starts deliveries as."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pipelines.requester import BY_ALIAS, REQUESTED_BY
from pipelines.serving.ports import Starter
from pipelines.serving.processes import Processes
from tidegate.core.clock import SystemClock

SECRET = "TIDEGATE_WEBHOOK_SECRET"
"""The environment variable with what MLflow signs with."""
SECRET_BEFORE = f"{SECRET}_BEFORE"
"""With what it signed until now: believed too, while the one takes the place of the other."""
TRACKING_URI = "MLFLOW_TRACKING_URI"


@asynccontextmanager
async def workflows_of(spec: Path, context: str | None) -> AsyncIterator[Starter]:
    """Workflows of that cluster; None is the current one."""
    # Not above: who starts processes needs neither Hera nor Kubernetes' client.
    from pipelines.serving.workflows import Workflows
    from rollouts.adapters.kube.connect import connect
    from tidegate.cli.commands.workflow_render import drawn

    blueprint = drawn(spec)
    client = connect(context, clock=SystemClock(), namespace=blueprint.namespace)
    try:
        yield Workflows(client, blueprint.name, blueprint.namespace)
    finally:
        await client.close()


def processes_of(spec: Path, state: Path, tracking_uri: str | None) -> Processes:
    """Each the command `deliver` of this same installation."""
    command = [sys.executable, sys.argv[0], "deliver", str(spec.absolute()), "--state", str(state.absolute())]
    environment = {name: value for name, value in os.environ.items() if name not in (SECRET, SECRET_BEFORE)}
    environment[REQUESTED_BY] = BY_ALIAS
    if tracking_uri is not None:
        # Not among the arguments, which everybody on the machine can read: it may carry a password.
        environment[TRACKING_URI] = tracking_uri
    return Processes(command, environment, state / "serve" / "logs")
