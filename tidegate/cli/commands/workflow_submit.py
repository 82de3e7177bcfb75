"""`tidegate workflow submit`: a delivery begins in the cluster."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from pipelines.workflow.blueprint import Blueprint
from pipelines.workflow.render import rendered
from pipelines.workflow.submission import workflow
from rollouts.adapters.kube.connect import connect
from rollouts.errors import NotFound
from rollouts.kube.resources import WORKFLOW_TEMPLATES, WORKFLOWS
from tidegate.cli.commands.workflow_render import drawn
from tidegate.cli.output import print_json
from tidegate.cli.pods_reach import require_files_for_pods
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError

_VERSION = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True)
class Asked:
    """As the options say it."""

    version: str
    delivery: str
    apply: bool
    context: str | None
    state: Path
    tracking_uri: str | None
    """The registry as it is reached from here; nobody is asked when it is not known."""


def run(spec_path: Path, asked: Asked, *, as_json: bool) -> int:
    """Create the workflow; print its name."""
    if not _VERSION.fullmatch(asked.version):
        raise UsageError(f"--version: found {asked.version!r}; expected the number of a model version")
    blueprint = drawn(spec_path)
    if asked.tracking_uri:
        require_files_for_pods(blueprint.spec, asked.version, asked.state, asked.tracking_uri)
    name = asyncio.run(_submit(blueprint, asked))
    if as_json:
        print_json({"workflow": name, "namespace": blueprint.namespace})
    else:
        print(name)
    return 0


async def _submit(blueprint: Blueprint, asked: Asked) -> str:
    client = connect(asked.context, clock=SystemClock(), namespace=blueprint.namespace)
    try:
        if asked.apply:
            for each in rendered(blueprint):
                await client.apply(each)
        else:
            await client.get(WORKFLOW_TEMPLATES, blueprint.name)
        wanted = workflow(blueprint.name, blueprint.namespace, version=asked.version, delivery=asked.delivery)
        created = await client.create(WORKFLOWS, wanted)
    except NotFound as error:
        raise UsageError(
            f"there is no WorkflowTemplate {blueprint.name} in the namespace {blueprint.namespace}",
            hint="--apply brings it there",
        ) from error
    finally:
        await client.close()
    return str(created["metadata"]["name"])
