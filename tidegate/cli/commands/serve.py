"""`tidegate serve`: MLflow starts deliveries."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from pipelines.adapters.web_server import address_of, answering, listening
from pipelines.page.board import Board
from pipelines.page.look import Looker
from pipelines.page.routes import LivePage
from pipelines.serving.app import make_app
from pipelines.serving.inbox import Inbox
from pipelines.serving.openapi import WEBHOOK
from pipelines.serving.receiver import Receiver
from pipelines.serving.reconciler import Reconciler, Watched, World
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_triggers import MlflowTriggers
from registry.triggers.queue import Policy
from tidegate import __version__
from tidegate.cli.addresses import host_and_port
from tidegate.cli.commands.report import report_of
from tidegate.cli.compose import open_deliveries, read_delivery, registry_uri
from tidegate.cli.interrupt import cancelled_by_signals
from tidegate.cli.output import note
from tidegate.cli.starters import SECRET, processes_of, workflows_of
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.quantities import parse_duration

LEAST_SECRET = 16
"""Characters; what is shorter could be guessed from one message that was overheard."""


@dataclass(frozen=True)
class Asked:
    """As the options say it."""

    spec: Path
    state: Path
    tracking_uri: str | None
    address: str
    workflows: bool
    context: str | None
    policy: Policy
    every: str
    register: str | None
    """The address at which MLflow reaches this receiver."""


def run(asked: Asked) -> int:
    """Receive and reconcile until Ctrl-C or SIGTERM."""
    spec, secret, every = read_delivery(asked.spec), _secret(), _every(asked.every)
    with listening(*host_and_port(asked.address)) as listener:
        asyncio.run(_serve(asked, spec, secret, every, listener))
    return 0


async def _serve(asked: Asked, spec: Delivery, secret: str, every: timedelta, listener: socket.socket) -> None:
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

        receiver = Receiver(spec.model.name, spec.model.origin, secret, inbox, clock, wake)
        page = _page(asked, spec, ledgers, inbox)
        app = make_app(receiver, reconciler, page, version=__version__)

        async def register() -> None:
            if asked.register is not None:
                await _register(triggers, f"tidegate-{spec.metadata.name}", asked.register, secret)

        async with answering(app, listener):
            note(f"listening on {address_of(listener)}{WEBHOOK} for {spec.model.name}@{spec.model.origin}")
            try:
                await _until_stopped(reconciler, asyncio.create_task(register()))
            finally:
                # First of all: the server waits for whatever is being answered, and a stream has no end of its own.
                page.stop()


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


def _secret() -> str:
    secret = os.environ.get(SECRET, "")
    if len(secret) < LEAST_SECRET:
        raise UsageError(
            f"{SECRET} has {len(secret)} characters; expected at least {LEAST_SECRET}",
            hint="for instance what `openssl rand -hex 32` prints",
        )
    return secret


def _every(text: str) -> timedelta:
    try:
        every = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--every {text}: expected {error}") from None
    if not timedelta(seconds=1) <= every <= timedelta(days=1):
        raise UsageError(f"--every {text}: expected 1s to 1d")
    return every
