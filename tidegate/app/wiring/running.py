"""What every process has that carries a delivery: its journal, its heartbeat, its place among carriers, its context."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from prometheus_client import Metric

from gates.adapters.command import ask_command
from pipelines.adapters.load.blocks import LocustLoads
from pipelines.adapters.metrics_server import MetricsServer
from pipelines.events.artifacts import Trials
from pipelines.events.journal import Journal
from pipelines.events.listeners import QueuedListener
from pipelines.events.spool import Spool, passes
from pipelines.events.state import DeliveryState
from pipelines.events.writer import WriterLimits
from pipelines.model import Plan, Result
from pipelines.ports import DeliveryLedger, Listener
from pipelines.run.context import Commands, Context, Stages
from pipelines.spec.delivery import Delivery
from pipelines.spec.fleets import LocalFleet
from registry.errors import StopAsked
from registry.model import Event
from rollouts.cluster.carrier import Carrier
from rollouts.local.watchdog import lend
from tidegate.app.process import note, process_name
from tidegate.app.wiring.git.access import git_access_for
from tidegate.app.wiring.model import AttachedDelivery, Backends, BackendsOpener, DeliveryInputs
from tidegate.app.wiring.services import notifier_for, readers_for
from tidegate.app.wiring.stores import open_registry
from tidegate.app.wiring.trust import local_identities, trusted_images
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import TidegateError

Interrupts = Callable[[], AbstractAsyncContextManager[asyncio.Event]]
"""Who may cancel what runs within the context; the event is set when they wait no longer for its end."""


class DeliveryDisplay(Protocol):
    """Follows one delivery, event by event; entered while it runs."""

    story: DeliveryState

    def on_event(self, event: Event) -> None:
        """Take the event in and show what it changed."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True)
class DeliveryOutcome:
    """How a delivery ended, and where its report is."""

    result: Result
    report: Path


@dataclass(frozen=True)
class Recording:
    """Where everything that happens is written down."""

    journal: Journal
    trials: Trials
    spec_file: str | None
    """Where the spec lies among the delivery's kept files."""
    impatient: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a person waits no longer for regions that do not let themselves be taken back."""


def delivery_context(
    inputs: DeliveryInputs, plan: Plan, stages: Stages, written: Recording, backends: Backends
) -> Context:
    """What the steps of a delivery are given."""
    return Context(
        spec=inputs.spec,
        plan=plan,
        stages=stages,
        folder=inputs.folder,
        clock=backends.clock,
        journal=written.journal,
        registry=inputs.registry,
        engines=backends.engines,
        fleets=backends.fleets,
        chat=backends.chat,
        tokenizer=backends.tokenizer,
        proxy=backends.proxy,
        trials=written.trials,
        users=backends.users,
        requests=backends.users,
        events=backends.events,
        loads=LocustLoads(inputs.state.delivery(written.journal.delivery) / "load"),
        scratch=backends.scratch,
        queries=backends.queries,
        samples=backends.samples,
        readers=readers_for(inputs.spec, inputs.folder),
        commands=Commands(
            partial(ask_command, folder=inputs.folder, environment=os.environ),
            inputs.state.delivery(written.journal.delivery) / "commands",
        ),
        identities=inputs.identities,
        git=git_access_for(inputs.spec, backends.clock),
        asker=inputs.asker,
        approvers=inputs.approvers,
        spec_file=written.spec_file,
        impatient=written.impatient,
    )


@contextmanager
def journal_of(
    inputs: DeliveryInputs, ledger: DeliveryLedger, listeners: Sequence[Listener], limits: WriterLimits
) -> Iterator[Journal]:
    """A journal whose records outlive this process, where its state folder does."""
    spool = Spool(inputs.state.unwritten, ledger.delivery)
    journal = Journal(ledger, SystemClock(), listeners, registry=inputs.registry, spool=spool, limits=limits)
    try:
        yield journal
    finally:
        journal.end()


BEAT_SECONDS = 5.0


@asynccontextmanager
async def heartbeat(say: Callable[[], Awaitable[None]], clock: Clock | None = None) -> AsyncIterator[None]:
    """Say every few seconds that this process lives; one that is asked there to stop is cancelled."""
    carrying, clock = asyncio.current_task(), clock or SystemClock()
    assert carrying is not None, "only a task can be cancelled"

    async def beat() -> None:
        while True:
            try:
                await say()
            except StopAsked as asked:
                note(f"stopping: {asked}; every region goes back first")
                carrying.cancel()
                return
            except TidegateError as error:
                # The next event fails too when it is for good, and ends the delivery in good order; of a store that
                # is silent the journal tells.
                if not passes(error):
                    note(f"no heartbeat: {error}")
            await clock.sleep(BEAT_SECONDS)

    task = asyncio.create_task(beat(), name=f"heartbeat of process {os.getpid()}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def carrier_of(
    ledger: DeliveryLedger,
    spec: Delivery,
    *,
    patience: timedelta = timedelta(0),
    hands_on: bool = False,
    continues: bool = False,
    key: str = "",
) -> Carrier:
    """Name this process as who carries the delivery, alone or as one of those that do so step by step.

    Args:
        ledger: the delivery's; its owner is known to all who carry it.
        spec: says how long a trial may go on while nobody does.
        patience: how long nothing may be heard between two steps; a trial goes on at least as long.
        hands_on: whether others go on with it afterwards.
        continues: whether others carried it before as the same owner.
        key: with which it was opened; empty for none.
    """
    unattended = max(spec.fleet.unattended.total_seconds(), patience.total_seconds())
    return Carrier(
        token=ledger.owner,
        who=process_name(),
        over=ledger.over,
        hands_on=hands_on,
        continues=continues,
        unattended_seconds=unattended,
        key=key,
    )


@asynccontextmanager
async def attached_context(
    attached: AttachedDelivery,
    stages: Stages,
    opener: BackendsOpener,
    listeners: list[Listener],
    impatient: asyncio.Event | None = None,
    *,
    hands_on: bool = False,
    closes: bool = False,
) -> AsyncIterator[Context]:
    """The delivery's surroundings; its heart beats inside, and a canary on this machine may stay.

    `impatient` is set when a person waits no longer for regions that do not let themselves be taken back. Anyone who
    `hands_on` leaves the delivery to its next process; the one who `closes` it is not kept from that by being asked to.
    """
    inputs = DeliveryInputs(
        spec=attached.spec,
        folder=attached.spec_path.parent,
        state=attached.state,
        registry=open_registry(attached.state.root, attached.tracking_uri),
        users=False,
        keep=False,
        identities=local_identities(attached.trusted),
        images=attached.plan.resolved.images if attached.plan.resolved else {},
        trusted=trusted_images(attached.trusted),
        carrier=carrier_of(
            attached.ledger,
            attached.spec,
            patience=attached.patience,
            hands_on=hands_on,
            continues=True,
            key=attached.key,
        ),
    )
    with (
        notifier_for(attached.spec.notify, attached.plan, attached.ledger) as notifier,
        QueuedListener(listeners) as displays,
        journal_of(inputs, attached.ledger, [displays, notifier], attached.limits) as journal,
    ):
        trials = Trials(attached.folder, journal)
        written = Recording(journal, trials, attached.spec_file, impatient or asyncio.Event())
        async with heartbeat(_heartbeat_of(attached, journal, closes=closes)), opener(inputs, None) as backends:
            yield delivery_context(inputs, attached.plan, stages, written, backends)


def _heartbeat_of(attached: AttachedDelivery, journal: Journal, *, closes: bool) -> Callable[[], Awaitable[None]]:
    async def say() -> None:
        # First: the fleet on this machine must hear of it also while MLflow is away.
        if attached.patience and isinstance(attached.spec.fleet, LocalFleet):
            lend(attached.state.root, SystemClock().now() + attached.patience)
        with suppress(*((StopAsked,) if closes else ())):
            await journal.beat()

    return say


Done = TypeVar("Done")


async def uncancelled(work: Coroutine[Any, Any, Done]) -> Done:
    """What it returns; a cancellation meanwhile comes once it has ended, and to what can close a ledger."""
    task, current, cancelled = asyncio.create_task(work), asyncio.current_task(), False
    assert current is not None, "only a task can be cancelled"
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
            current.uncancel()
    if cancelled:
        current.cancel()
    return task.result()


@asynccontextmanager
async def served_numbers(
    numbers: Callable[[], Iterable[Metric]], address: tuple[str, int] | None
) -> AsyncIterator[MetricsServer | None]:
    """Who serves a delivery's own numbers within the context, by host and port; nobody where there is no address.

    Raises:
        OutsideError: nobody can listen there.
    """
    if address is None:
        yield None
        return
    server = MetricsServer(numbers, *address)
    try:
        yield server
    finally:
        await server.close()
