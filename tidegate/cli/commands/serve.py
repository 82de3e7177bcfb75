"""`tidegate serve`: MLflow starts deliveries."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from socket import socket

from starlette.routing import Route

from pipelines.adapters.web_server import address_of, answering
from pipelines.page.board import Board
from pipelines.page.look import Looker
from pipelines.page.routes import LivePage
from pipelines.serving.app import behind_door, heard, shown
from pipelines.serving.inbox import Inbox
from pipelines.serving.openapi import WEBHOOK
from pipelines.serving.receiver import Receiver
from pipelines.serving.reconciler import Reconciler, Watched, World
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_triggers import MlflowTriggers
from registry.triggers.queue import Policy
from registry.triggers.signature import weakness
from tidegate import __version__
from tidegate.cli.commands.report import report_of
from tidegate.cli.compose import open_deliveries, read_delivery, registry_uri
from tidegate.cli.doors import Doors, opened
from tidegate.cli.interrupt import cancelled_by_signals
from tidegate.cli.output import note
from tidegate.cli.starters import SECRET, SECRET_BEFORE, processes_of, workflows_of
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.quantities import parse_duration


@dataclass(frozen=True)
class Asked:
    """As the options say it."""

    spec: Path
    state: Path
    tracking_uri: str | None
    doors: Doors
    workflows: bool
    context: str | None
    policy: Policy
    every: str
    register: str | None
    """The address at which MLflow reaches this receiver."""


def run(asked: Asked) -> int:
    """Receive and reconcile until Ctrl-C or SIGTERM."""
    spec, secrets, every = read_delivery(asked.spec), _secrets(), _every(asked.every)
    with opened(asked.doors) as listeners:
        asyncio.run(_serve(asked, spec, secrets, every, listeners))
    return 0


async def _serve(
    asked: Asked, spec: Delivery, secrets: tuple[str, ...], every: timedelta, listeners: tuple[socket, socket]
) -> None:
    triggers = MlflowTriggers(registry_uri(asked.state, asked.tracking_uri))
    async with AsyncExitStack() as stack:
        inbox = Inbox(asked.state / "serve" / "inbox.db")
        stack.callback(inbox.close)
        starter = await stack.enter_async_context(
            workflows_of(asked.spec, asked.context)
            if asked.workflows
            else nullcontext(processes_of(asked.spec, asked.state, asked.tracking_uri))
        )
        ledgers, clock = open_deliveries(asked.state, asked.tracking_uri), SystemClock()
        watched = Watched(spec.model.name, spec.model.origin, asked.policy, every)
        reconciler = Reconciler(watched, World(inbox, triggers, ledgers, starter, clock, note))
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(reconciler.wake)

        receiver = Receiver(spec.model.name, spec.model.origin, secrets, inbox, clock, wake)
        page = _page(asked, spec, ledgers, inbox)

        async def register() -> None:
            if asked.register is not None:
                await _register(triggers, f"tidegate-{spec.metadata.name}", asked.register, secrets[0])

        hears, shows = heard(receiver, reconciler), shown(receiver, reconciler, page, __version__)
        async with _answering(asked, listeners, hears, shows):
            told = f"{address_of(listeners[0], tls=asked.doors.tls)}{WEBHOOK} for {spec.model.name}@{spec.model.origin}"
            note(f"listening on {told}")
            if listeners[0] is not listeners[1]:
                note(f"the page is at {address_of(listeners[1], tls=asked.doors.tls)}/")
            try:
                await _until_stopped(reconciler, asyncio.create_task(register()))
            finally:
                # First of all: the server waits for whatever is being answered, and a stream has no end of its own.
                page.stop()


@asynccontextmanager
async def _answering(
    asked: Asked, listeners: tuple[socket, socket], hears: list[Route], shows: list[Route]
) -> AsyncIterator[None]:
    """Webhooks on the one, the page on the other; probes are answered on both."""
    doors, names = asked.doors, asked.doors.names(asked.register)
    async with AsyncExitStack() as stack:
        if listeners[0] is not listeners[1]:
            alone = behind_door(hears, hosts=names, login=doors.login)
            await stack.enter_async_context(answering(alone, listeners[0], tls=doors.tls))
        page = behind_door([*hears, *shows], hosts=names, login=doors.login)
        await stack.enter_async_context(answering(page, listeners[1], tls=doors.tls))
        yield


def _page(asked: Asked, spec: Delivery, ledgers: MlflowDeliveries, inbox: Inbox) -> LivePage:
    wishes = partial(inbox.standing, spec.model.name, spec.model.origin)
    board = Board(spec.model.name, Looker(spec.model.name, ledgers, wishes, SystemClock()).look, SystemClock())
    report = partial(report_of, spec=spec, state=StateFolder(asked.state), ledgers=ledgers, back="../")
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


async def _register(triggers: MlflowTriggers, name: str, url: str, secret: str) -> None:
    """Without the webhook everything still works, only later: what is wrong is told, and ends nothing."""
    try:
        answered = await asyncio.to_thread(triggers.announce, name, url, secret)
    except TidegateError as error:
        note(f"webhook {name}: {error}")
    else:
        note(f"webhook {name}: MLflow's test event was answered {answered}")


def _secrets() -> tuple[str, ...]:
    """The one to register with, and the one before it while it is still in use."""
    before = os.environ.get(SECRET_BEFORE)
    said = {SECRET: os.environ.get(SECRET, "")} | ({SECRET_BEFORE: before} if before else {})
    for name, secret in said.items():
        if weak := weakness(secret):
            raise UsageError(f"{name} {weak}", hint="for instance what `openssl rand -hex 32` prints")
    return tuple(said.values())


def _every(text: str) -> timedelta:
    try:
        every = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--every {text}: expected {error}") from None
    if not timedelta(seconds=1) <= every <= timedelta(days=1):
        raise UsageError(f"--every {text}: expected 1s to 1d")
    return every
