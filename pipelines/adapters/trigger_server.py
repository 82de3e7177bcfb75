"""The server by which MLflow starts deliveries: webhooks, and reconciliation with the registry."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from pipelines.adapters.fleets import cluster_client
from pipelines.adapters.stores import mlflow_address, open_deliveries
from pipelines.adapters.web_server import Listener
from pipelines.authority.answering import BY_ALIAS, REQUESTED_BY
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from pipelines.triggers.app import (
    OPEN_TO_ALL,
    WEBHOOK,
    Numbers,
    Receiver,
    behind_door,
    metrics_route,
    receiver_routes,
)
from pipelines.triggers.queue import RequestQueue
from pipelines.triggers.reconciler import MlflowTriggers, Reconciler, Starter
from pipelines.triggers.starters import ProcessStarter
from pipelines.triggers.webhooks import SECRET, SECRET_BEFORE
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError
from tidegate.core.process import cancelled_by_signals, meanwhile, note
from tidegate.core.threads import call_in_thread

TRACKING_URI = "MLFLOW_TRACKING_URI"


async def serve_triggers(
    spec: Delivery,
    spec_path: Path,
    listener: Listener,
    *,
    state: StateFolder,
    tracking_uri: str | None,
    context: str | None,
    workflows: bool,
    every: timedelta,
    secrets: tuple[str, ...],
    register: str | None,
) -> None:
    """Receive and reconcile until Ctrl-C or SIGTERM.

    `context` is that of the cluster of `workflows`. `secrets` are those that MLflow signs with; none to believe no
    webhook. `register` is the address at which MLflow reaches this receiver; None to register no webhook. What names
    models and hosts is answered on the loopback only, or to who has the password.
    """
    model, alias = spec.model.name, spec.model.origin
    triggers = MlflowTriggers(mlflow_address(state.root, tracking_uri))
    clock, loop = SystemClock(), asyncio.get_running_loop()
    options = listener.options
    async with AsyncExitStack() as stack:
        ledgers = await call_in_thread(open_deliveries, state.root, tracking_uri)
        if workflows:
            starter = await stack.enter_async_context(_workflow_starter(spec, spec_path, context))
        else:
            starter = _process_starter(spec_path, state, tracking_uri)
        inbox = RequestQueue(state.root / "serve" / "inbox.db")
        stack.callback(inbox.close)
        reconciler = Reconciler(model, alias, every, inbox, triggers, ledgers, starter, clock, note)

        def wake() -> None:
            loop.call_soon_threadsafe(reconciler.wake)

        receiver = Receiver(model, alias, secrets, inbox, clock, wake)
        routes, password = receiver_routes(receiver, reconciler), options.password
        if options.is_local or password:
            routes.append(metrics_route(Numbers(receiver, reconciler, spec.metadata.name)))
        app = behind_door(routes, hosts=options.names(register), password=password, open_to_all=OPEN_TO_ALL)
        await stack.enter_async_context(listener.answering(app))
        note(f"listening on {listener.address}{WEBHOOK} for {model}@{alias}")
        registering = _register(triggers.announce, f"tidegate-{spec.metadata.name}", register, secrets)
        async with meanwhile(registering):
            await _reconcile(reconciler)


async def _reconcile(reconciler: Reconciler) -> None:
    """Until a signal; what is being started then is started whole."""
    work = asyncio.create_task(reconciler.forever())
    try:
        async with cancelled_by_signals("no new requests; deliveries that were started go on"):
            await asyncio.shield(work)
    except asyncio.CancelledError:
        reconciler.stop()
        await work


async def _register(
    announce: Callable[[str, str, str], str], name: str, url: str | None, secrets: tuple[str, ...]
) -> None:
    """Without the webhook everything still works, only later: what is wrong is told, and ends nothing."""
    if url is None:
        return
    # MLflow's library takes seconds to load, and a receiver that does not answer is tried for longer.
    note(f"webhook {name}: MLflow is asked to send a test event to {url}")
    try:
        answered = await asyncio.to_thread(announce, name, url, secrets[0])
    except TidegateError as error:
        note(f"webhook {name}: {error}")
    else:
        note(f"webhook {name}: MLflow's test event was answered {answered}")


@asynccontextmanager
async def _workflow_starter(spec: Delivery, spec_path: Path, context: str | None) -> AsyncIterator[Starter]:
    """Workflows of that cluster; None is the current one."""
    # Not above: who starts processes needs no Hera.
    from pipelines.triggers.starters import WorkflowStarter
    from pipelines.workflow.render import blueprint_of

    blueprint = blueprint_of(spec, spec_path)
    async with cluster_client(context, blueprint.namespace) as client:
        yield WorkflowStarter(client, blueprint.name, blueprint.namespace)


def _process_starter(spec: Path, state: StateFolder, tracking_uri: str | None) -> Starter:
    """Each the command `deliver` of this same installation."""
    command = [sys.executable, sys.argv[0], "deliver", str(spec.absolute()), "--state", str(state.root.absolute())]
    environment = {name: value for name, value in os.environ.items() if name not in {SECRET, SECRET_BEFORE}}
    environment[REQUESTED_BY] = BY_ALIAS
    if tracking_uri is not None:
        # Not among the arguments, which everybody on the machine can read: it may carry a password.
        environment[TRACKING_URI] = tracking_uri
    return ProcessStarter(command, environment, state.root / "serve" / "logs")
