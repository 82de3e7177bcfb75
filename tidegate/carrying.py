"""A process that carries a delivery: it begins one, or takes over what another opened, and says that it lives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, Protocol, Self, TypeVar

from pipelines.adapters.metrics_server import served_metrics
from pipelines.adapters.services import notified_of
from pipelines.adapters.specs import bring_kept, kept_spec, read_delivery
from pipelines.authority.answering import Hearing, Speaker
from pipelines.events.artifacts import SPEC, bring_evidence, owed, vouched
from pipelines.events.history import plan_of
from pipelines.events.journal import Journal
from pipelines.events.listeners import EventFile, QueuedListener
from pipelines.events.spool import Spool, passes
from pipelines.events.state import DeliveryState
from pipelines.events.writer import WriterLimits, limits_of
from pipelines.model import Plan
from pipelines.plan.planner import refuse_other_plan
from pipelines.ports import Listener
from pipelines.run.context import Context
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_input, golden_set
from pipelines.spec.sections import LocalFleet
from pipelines.views.metrics import families
from registry.deliveries import MlflowDeliveries
from registry.errors import StopAsked
from registry.ledger import MlflowLedger
from registry.model import Event
from rollouts.cluster.carrier import Carrier
from rollouts.local.locks import lend
from tidegate.connect import Carried, Play, connect
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import TidegateError
from tidegate.core.process import note, process_name
from tidegate.core.threads import call_in_thread
from tidegate.reports import leave_report
from tidegate.surroundings import Surroundings

Interrupts = Callable[[], AbstractAsyncContextManager[asyncio.Event]]
"""Who may cancel what runs within the context; the event is set when they wait no longer for its end."""
Done = TypeVar("Done")
BEAT_SECONDS = 5.0


class DeliveryDisplay(Protocol):
    """Follows one delivery, event by event; entered while it runs."""

    story: DeliveryState

    def on_event(self, event: Event) -> None:
        """Take the event in and show what it changed."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Listening:
    """A `DeliveryDisplay` that shows nothing, and passes events on to those who listen."""

    def __init__(self, listeners: Sequence[Callable[[Event], object]] = ()) -> None:
        self.story = DeliveryState()
        self._listeners = tuple(listeners)

    def on_event(self, event: Event) -> None:
        self.story = self.story.apply(event)
        for listener in self._listeners:
            listener(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


@dataclass(frozen=True)
class Carrying:
    """How a process carries a delivery, and who follows it."""

    display: DeliveryDisplay
    interrupts: Interrupts
    play: Play = field(default_factory=Play)
    closes: bool = False
    """It ends the delivery, and is not kept from that by being asked to."""
    report: bool = True
    """It leaves a report behind."""


async def carry(
    carried: Carried,
    how: Carrying,
    work: Callable[[Context], Awaitable[Done]],
    unbegun: Callable[[Journal, BaseException], Awaitable[Done]] | None = None,
) -> Done:
    """What `work` returns with the delivery's context.

    Nobody waits for the report, which comes last, and what the store does not take outlives this process where the
    state folder does.

    Args:
        carried: the delivery.
        how: it is carried.
        work: to be done.
        unbegun: of a delivery that this process has opened: ends it when `work` could not begin.
    """
    at, ledger, spec = carried.at, carried.ledger, carried.spec
    events = EventFile(carried.folder / "events.jsonl")
    # Only where it began: elsewhere the ledger has more of the delivery than a file that begins now.
    kept: list[Listener] = [events] if unbegun or events.path.exists() else []
    with ExitStack() as last:
        with (
            notified_of(spec.notify, carried.plan, ledger) as told,
            how.display as display,
            QueuedListener([*kept, display]) as displays,
        ):
            journal = Journal(
                ledger,
                SystemClock(),
                [displays, *told],
                registry=at.registry,
                spool=Spool(at.state.unwritten, ledger.delivery),
                limits=_limits_of(carried),
            )
            last.callback(journal.end)
            async with how.interrupts() as impatient, heartbeat(_beat_of(carried, journal, closes=how.closes)):
                result = await _within(carried, how, (journal, impatient), work, unbegun)
        if how.report:
            target = await call_in_thread(leave_report, spec, at.state, ledger, events if kept else None)
            if target is not None:
                journal.attach(target)
            await journal.settle()
    return result


async def _within(
    carried: Carried,
    how: Carrying,
    written: tuple[Journal, asyncio.Event],
    work: Callable[[Context], Awaitable[Done]],
    unbegun: Callable[[Journal, BaseException], Awaitable[Done]] | None,
) -> Done:
    result: Done | None = None
    try:
        async with AsyncExitStack() as stack:
            metrics = None
            if how.play.metrics is not None:
                served = served_metrics(
                    lambda: families(how.display.story, delivery=carried.ledger.delivery), *how.play.metrics
                )
                metrics = await stack.enter_async_context(served)
            context = await stack.enter_async_context(connect(carried, *written, how.play, metrics))
            result = await work(context)
    except (TidegateError, asyncio.CancelledError) as error:
        if result is None and unbegun:
            return await unbegun(written[0], error)
        if result is None:
            raise
        what = str(error) or "it was asked to stop"
        note(f"the delivery is over, but what it started did not end well: {what}")
    assert result is not None, "a delivery ends with a result or with an error"
    return result


def _limits_of(carried: Carried) -> WriterLimits:
    """A process of many may lose its disk with its end: what it could not write it must wait for."""
    usual = limits_of(carried.spec.patience)
    return replace(usual, end=usual.patience) if carried.patience else usual


def _beat_of(carried: Carried, journal: Journal, *, closes: bool) -> Callable[[], Awaitable[None]]:
    async def say() -> None:
        # First: the fleet on this machine must hear of it also while MLflow is away.
        if carried.patience and isinstance(carried.spec.fleet, LocalFleet):
            lend(carried.at.root, SystemClock().now() + carried.patience)
        with suppress(*((StopAsked,) if closes else ())):
            await journal.beat()

    return say


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


def open_ledger(
    deliveries: MlflowDeliveries,
    spec: Delivery,
    plan: Plan,
    *,
    patience: timedelta = timedelta(0),
    key: str | None = None,
) -> MlflowLedger:
    """Begin a delivery by that plan; one that the same key has opened is joined instead.

    Raises:
        DeliveryRuns: another one of the model is under way.
    """
    return deliveries.open_delivery(
        plan.version,
        plan.champion,
        spec_digest=sha256(spec.path.read_bytes()).hexdigest(),
        patience=patience,
        key=key,
        engines=plan.engine_names,
        golden=golden_input(spec, spec.path.parent),
    )


def carrier_of(
    ledger: MlflowLedger,
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
    return Carrier(
        token=ledger.owner,
        who=process_name(),
        over=ledger.over,
        hands_on=hands_on,
        continues=continues,
        unattended_seconds=max(spec.fleet.unattended, patience).total_seconds(),
        key=key,
    )


def attach(
    at: Surroundings,
    deliveries: MlflowDeliveries,
    ledger: MlflowLedger,
    *,
    patience: timedelta = timedelta(0),
    hands_on: bool = False,
    key: str | None = None,
) -> Carried:
    """A delivery that another process opened: its plan, with the spec and the evidence that it kept.

    Raises:
        UsageError: they were not kept.
        NotAsPlanned: they are not those with which the delivery was opened.
    """
    events = ledger.recorded()
    plan, own = plan_of(events), at.state.delivery(ledger.delivery)
    spec_file, path = bring_kept(deliveries, ledger.delivery, events, own)
    spec = read_delivery(path, kept_below=own / SPEC)
    refuse_other_plan(plan, spec, prompts=len(golden_set(spec, path.parent)), delivery=ledger.delivery)
    bring_evidence(deliveries, ledger.delivery, own, vouched(events), owed(events))
    carrier = carrier_of(ledger, spec, patience=patience, hands_on=hands_on, continues=True, key=key or "")
    return Carried(at, ledger, plan, spec, spec_file, carrier, patience=patience)


def take_over(
    at: Surroundings,
    deliveries: MlflowDeliveries,
    delivery: str,
    speaker: Speaker,
    *,
    patience: timedelta = timedelta(0),
    key: str | None = None,
) -> MlflowLedger:
    """Make this process the one who carries the delivery, and write who says so, where somebody does.

    Args:
        at: where.
        deliveries: the ledgers.
        delivery: its whole id.
        speaker: who carries it on.
        patience: until the next process must be heard of.
        key: with which it is carried on.

    Raises:
        UsageError: they may not, by what the spec says and by who has asked for the delivery.
        Refused: the delivery is over, or a process carries it.
    """
    events = list(deliveries.events(delivery))
    hearing = Hearing(kept_spec(deliveries, delivery, events), delivery, events, at.identities, SystemClock())
    said = hearing.resumption(speaker)
    ledger = deliveries.take_over(delivery, patience=patience, key=key)
    # It speaks of all that has happened: where something came in between, it is signed again.
    while said is not None and (now := list(ledger.recorded())) != hearing.events:
        hearing = replace(hearing, events=now)
        said = hearing.resumption(speaker)
    if said is not None:
        ledger.append(said)
    return ledger
