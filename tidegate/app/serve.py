"""Lets MLflow start deliveries: webhooks, reconciliation with the registry, and the live page."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from pipelines.adapters.fleets import cluster_client
from pipelines.adapters.specs import read_delivery
from pipelines.adapters.stores import open_deliveries, open_triggers
from pipelines.authority.verification import BY_ALIAS, REQUESTED_BY
from pipelines.ports import Deliveries
from pipelines.requests import QueuePolicy
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from pipelines.triggers.app import behind_door, page_routes, receiver_routes
from pipelines.triggers.openapi import WEBHOOK
from pipelines.triggers.queue import RequestQueue
from pipelines.triggers.receiver import Receiver
from pipelines.triggers.reconciler import Reconciler, Starter, Watched, World
from pipelines.triggers.starters import ProcessStarter
from pipelines.triggers.webhooks import weakness
from pipelines.views.page.routes import Board, LivePage
from pipelines.views.page.snapshot import SnapshotReader
from tidegate import __version__
from tidegate.app.reports import report_of
from tidegate.app.wiring.web import Listeners, ListenOptions, listening_sockets
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.process import cancelled_by_signals, note
from tidegate.core.threads import call_in_thread
from tidegate.core.units import format_duration


@dataclass(frozen=True)
class ServeOptions:
    """As the options say it."""

    spec: Path
    state: Path
    tracking_uri: str | None
    listen: ListenOptions
    workflows: bool
    context: str | None
    policy: QueuePolicy
    every: timedelta
    """Between two looks at the registry."""
    register: str | None
    """The address at which MLflow reaches this receiver."""


def serve(options: ServeOptions) -> None:
    """Receive and reconcile until Ctrl-C or SIGTERM."""
    if not timedelta(seconds=1) <= options.every <= timedelta(days=1):
        raise UsageError(f"--every {options.every}: expected 1s to 1d")
    spec, secrets = (
        read_delivery(options.spec),
        _secrets(needed=options.register is not None or not options.listen.is_local),
    )
    if not secrets:
        note(
            f"{SECRET} is not set: webhooks are refused, and the registry is polled every "
            f"{format_duration(options.every)}"
        )
    with listening_sockets(options.listen) as listeners:
        asyncio.run(_serve(options, spec, secrets, listeners))


async def _serve(options: ServeOptions, spec: Delivery, secrets: tuple[str, ...], listeners: Listeners) -> None:
    triggers = open_triggers(options.state, options.tracking_uri)
    async with AsyncExitStack() as stack:
        inbox = RequestQueue(options.state / "serve" / "inbox.db")
        stack.callback(inbox.close)
        starter = await stack.enter_async_context(
            workflow_starter(options.spec, options.context)
            if options.workflows
            else nullcontext(process_starter(options.spec, options.state, options.tracking_uri))
        )
        ledgers, clock = await call_in_thread(open_deliveries, options.state, options.tracking_uri), SystemClock()
        watched = Watched(spec.model.name, spec.model.origin, options.policy, options.every)
        reconciler = Reconciler(watched, World(inbox, triggers, ledgers, starter, clock, note))
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(reconciler.wake)

        receiver = Receiver(spec.model.name, spec.model.origin, secrets, inbox, clock, wake)
        page = _page(options, spec, ledgers, inbox)

        async def register() -> None:
            if options.register is not None:
                await _register(triggers.announce, f"tidegate-{spec.metadata.name}", options.register, secrets[0])

        hears = receiver_routes(receiver, reconciler)
        shows = page_routes(receiver, reconciler, page, __version__, service=spec.metadata.name)
        door = partial(behind_door, hosts=options.listen.names(options.register), login=options.listen.login)
        # Probes are answered on both.
        async with listeners.answering(door(hears), door([*hears, *shows])):
            note(f"listening on {listeners.webhooks_address}{WEBHOOK} for {spec.model.name}@{spec.model.origin}")
            if listeners.webhooks is not listeners.page:
                note(f"the page is at {listeners.page_address}/")
            try:
                await _until_stopped(reconciler, asyncio.create_task(register()))
            finally:
                # First of all: the server waits for whatever is being answered, and a stream has no end of its own.
                page.stop()


def _page(options: ServeOptions, spec: Delivery, ledgers: Deliveries, inbox: RequestQueue) -> LivePage:
    requests = partial(inbox.standing, spec.model.name, spec.model.origin)
    board = Board(
        spec.model.name, SnapshotReader(spec.model.name, ledgers, requests, SystemClock()).look, SystemClock()
    )
    report = partial(report_of, spec=spec, state=StateFolder(options.state), ledgers=ledgers, back="../")
    return LivePage(board, report)


async def _until_stopped(reconciler: Reconciler, registration: asyncio.Task[None]) -> None:
    """Reconcile until a signal; what is being started then is started whole."""
    work = asyncio.create_task(reconciler.forever())
    try:
        async with cancelled_by_signals("no new requests; deliveries that were started go on"):
            await asyncio.shield(work)
    except asyncio.CancelledError:
        reconciler.stop()
        await work
    finally:
        registration.cancel()
        await asyncio.wait([registration])


async def _register(announce: Callable[[str, str, str], str], name: str, url: str, secret: str) -> None:
    """Without the webhook everything still works, only later: what is wrong is told, and ends nothing."""
    # MLflow's library takes seconds to load, and a receiver that does not answer is tried for longer.
    note(f"webhook {name}: MLflow is asked to send a test event to {url}")
    try:
        answered = await asyncio.to_thread(announce, name, url, secret)
    except TidegateError as error:
        note(f"webhook {name}: {error}")
    else:
        note(f"webhook {name}: MLflow's test event was answered {answered}")


def _secrets(*, needed: bool) -> tuple[str, ...]:
    """The one to register with, and the one before it while it is still in use; none where no webhook can come."""
    before = os.environ.get(SECRET_BEFORE)
    if not needed and not before and SECRET not in os.environ:
        return ()
    if SECRET not in os.environ:
        raise UsageError(f"{SECRET} is not set", hint="export what `openssl rand -hex 32` prints, here and in MLflow")
    said = {SECRET: os.environ.get(SECRET, "")} | ({SECRET_BEFORE: before} if before else {})
    for name, secret in said.items():
        if weak := weakness(secret):
            raise UsageError(f"{name} {weak}", hint="for instance what `openssl rand -hex 32` prints")
    return tuple(said.values())


SECRET = "TIDEGATE_WEBHOOK_SECRET"
"""The environment variable with what MLflow signs with."""


SECRET_BEFORE = f"{SECRET}_BEFORE"
"""With what it signed until now: believed too, while the one takes the place of the other."""


TRACKING_URI = "MLFLOW_TRACKING_URI"


@asynccontextmanager
async def workflow_starter(spec: Path, context: str | None) -> AsyncIterator[Starter]:
    """Workflows of that cluster; None is the current one."""
    # Not above: who starts processes needs no Hera.
    from pipelines.triggers.starters import WorkflowStarter
    from pipelines.workflow.render import blueprint_of

    blueprint = blueprint_of(read_delivery(spec), spec)
    async with cluster_client(context, blueprint.namespace) as client:
        yield WorkflowStarter(client, blueprint.name, blueprint.namespace)


def process_starter(spec: Path, state: Path, tracking_uri: str | None) -> ProcessStarter:
    """Each the command `deliver` of this same installation."""
    command = [sys.executable, sys.argv[0], "deliver", str(spec.absolute()), "--state", str(state.absolute())]
    environment = {name: value for name, value in os.environ.items() if name not in (SECRET, SECRET_BEFORE)}
    environment[REQUESTED_BY] = BY_ALIAS
    if tracking_uri is not None:
        # Not among the arguments, which everybody on the machine can read: it may carry a password.
        environment[TRACKING_URI] = tracking_uri
    return ProcessStarter(command, environment, state / "serve" / "logs")
