"""A process that carries a delivery: it begins one, or takes over what another opened, and says that it lives.

`deliver` goes from the plan to the report, `resume` from where a process died; `carry` is what is around both, and
around the single steps of a workflow.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import TypeVar

from pipelines.adapters.services import notified_of
from pipelines.adapters.specs import bring_kept, kept_spec, read_delivery
from pipelines.authority.answering import Hearing, Speaker
from pipelines.delivery_lock import delivery_lock
from pipelines.events.artifacts import SPEC, bring_evidence, keep_spec, vouched
from pipelines.events.journal import Journal
from pipelines.events.listeners import EventFile, QueuedListener
from pipelines.events.state import plan_of, state_of
from pipelines.events.writer import Spool, WriterLimits, passes
from pipelines.model import Ending, Plan, Result
from pipelines.plan.planner import refuse_other_plan
from pipelines.ports import Listener
from pipelines.run.context import Context
from pipelines.run.engine import deliver as run_plan
from pipelines.run.engine import undisturbed
from pipelines.run.resume import resume as resume_plan
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_input, golden_set
from pipelines.spec.sections import LocalFleet
from pipelines.statements import Prover
from registry.deliveries import MlflowDeliveries
from registry.errors import StopAsked
from registry.ledger import MlflowLedger
from registry.model import DeliverySummary
from rollouts.local.locks import end_lease, lend
from tidegate.connect import Carried, Carrying, connect, preconditions, refuse
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import ExitCode, TidegateError
from tidegate.core.process import note
from tidegate.core.threads import call_in_thread
from tidegate.planning import plan_for, settle
from tidegate.standing import leave_report
from tidegate.surroundings import Surroundings

Done = TypeVar("Done")
BEAT_SECONDS = 5.0


async def deliver(
    at: Surroundings,
    spec: Delivery,
    how: Carrying,
    *,
    version: str | None = None,
    asker: Prover | None = None,
) -> Result:
    """Deliver a version to every region, or roll it back; whoever interrupts it has it rolled back too.

    The `version` with that number, else the one that the alias points at. `asker` proves who asks for it.

    Raises:
        TidegateError: nothing was begun: every reason of its preconditions, or MLflow is away.
        DeliveryRuns: another one is under way.
    """
    # What this machine lacks is said at once; the rest takes a plan, which takes MLflow.
    await call_in_thread(lambda: refuse(preconditions(at, spec, users=how.users, asker=asker)))
    preview = await call_in_thread(plan_for, spec, at.registry, version=version, preview=True)
    await call_in_thread(lambda: refuse(preconditions(at, spec, preview, users=how.users, asker=asker)))

    def opened(plan: Plan) -> Carried:
        ledger, spec_file = open_ledger(at.deliveries(), spec, plan), None
        try:
            spec_file = keep_spec(ledger, spec.path, spec)
        except TidegateError as error:
            note(f"the spec is not kept, so that `tidegate resume` will not be possible: {error}")
        return Carried(at, ledger, plan, spec, spec_file, asker)

    with delivery_lock(at.state.lock):
        plan = await call_in_thread(settle, at, spec, version=version)
        carried = await undisturbed(call_in_thread(opened, plan), stops_after=True)
        return await carry(carried, how, run_plan, _closed_unbegun)


async def _closed_unbegun(journal: Journal, error: BaseException) -> Result:
    if isinstance(error, TidegateError):
        return await journal.closed(Ending.FAILED, str(error), error.exit_code)
    return await journal.closed(Ending.INTERRUPTED, "asked to stop before it began", ExitCode.INTERRUPTED)


async def resume(
    at: Surroundings, delivery: str, how: Carrying, *, by: str | None = None, prover: Prover | None = None
) -> Result:
    """Carry a delivery whose process died to its end, here; finished steps are skipped.

    `delivery` is its id, or the first characters of it; `by` says who carries it on, where the spec says that a name is
    enough, and `prover` proves it.

    Raises:
        TidegateError: it is over or is carried by a process, its spec was not kept, or the caller is not entitled.
    """
    speaker = Speaker(by, prover)

    def taken_over() -> Carried:
        deliveries = at.deliveries()
        whole = deliveries.whole_id(delivery)
        ledger = take_over(at, deliveries, whole, speaker)
        carried = attach(at, deliveries, ledger, deliveries.summary(whole), hands_on=False)
        # The lock is the sign of life from here on: without it no other may be kept from the delivery.
        end_lease(at.root)
        how.display.story = state_of(carried.ledger.recorded())
        return carried

    with delivery_lock(at.state.lock):
        carried = await undisturbed(call_in_thread(taken_over), stops_after=True)
        return await carry(carried, how, resume_plan)


async def carry(
    carried: Carried,
    how: Carrying,
    work: Callable[[Context], Awaitable[Done]],
    unbegun: Callable[[Journal, BaseException], Awaitable[Done]] | None = None,
) -> Done:
    """What `work` returns with the delivery's context.

    Nobody waits for the report, which comes last, and what the store does not take outlives this process where the
    state folder does. `unbegun`, of a delivery that this process has opened, ends it when `work` could not begin.
    """
    at, ledger, spec = carried.at, carried.ledger, carried.spec
    events = EventFile(carried.folder / "events.jsonl")
    # Only where it began: elsewhere the ledger has more of the delivery than a file that begins now.
    kept: list[Listener] = [events] if unbegun or events.path.exists() else []
    limits = WriterLimits.of(spec.patience)
    with ExitStack() as last:
        with (
            notified_of(spec.notify, carried.plan, ledger) as told,
            how.display as display,
            QueuedListener([each.on_event for each in (*kept, display)]) as displays,
        ):
            journal = Journal(
                ledger,
                SystemClock(),
                [displays, *told],
                registry=at.registry,
                spool=Spool(at.state.unwritten, ledger.delivery),
                # A process of many may lose its disk with its end: what it could not write it must wait for.
                limits=replace(limits, end=limits.patience) if carried.patience else limits,
            )
            last.callback(journal.end)

            async def beat() -> None:
                # First: the fleet on this machine must hear of it also while MLflow is away.
                if carried.patience and isinstance(spec.fleet, LocalFleet):
                    lend(at.root, SystemClock().now() + carried.patience)
                with suppress(*((StopAsked,) if how.closes else ())):
                    await journal.beat()

            result: Done | None = None
            async with how.interrupts() as impatient, heartbeat(beat):
                try:
                    async with connect(carried, how, journal, impatient) as context:
                        result = await work(context)
                except (TidegateError, asyncio.CancelledError) as error:
                    if result is not None:
                        what = str(error) or "it was asked to stop"
                        note(f"the delivery is over, but what it started did not end well: {what}")
                    elif unbegun:
                        result = await unbegun(journal, error)
                    else:
                        raise
        if how.report:
            target = await call_in_thread(leave_report, spec, at.state, ledger, events if kept else None)
            if target is not None:
                journal.attach(target)
            await journal.settle()
    assert result is not None, "a delivery ends with a result or with an error"
    return result


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


def attach(
    at: Surroundings, deliveries: MlflowDeliveries, ledger: MlflowLedger, known: DeliverySummary, *, hands_on: bool
) -> Carried:
    """A delivery that another process opened: its plan, with the spec and the evidence that it kept.

    `known` is as it is carried now; `hands_on` says that other processes go on after this one.

    Raises:
        UsageError: they were not kept.
        NotAsPlanned: they are not those with which the delivery was opened.
    """
    events = ledger.recorded()
    plan, own = plan_of(events), at.state.delivery(ledger.delivery)
    spec_file, path = bring_kept(deliveries, ledger.delivery, events, own)
    spec = read_delivery(path, kept_below=own / SPEC)
    refuse_other_plan(plan, spec, prompts=len(golden_set(spec, path.parent)), delivery=ledger.delivery)
    bring_evidence(deliveries, ledger.delivery, own, vouched(events))
    return Carried(at, ledger, plan, spec, spec_file, known=known, hands_on=hands_on)


def take_over(at: Surroundings, deliveries: MlflowDeliveries, delivery: str, speaker: Speaker) -> MlflowLedger:
    """Make this process the one who carries the delivery, and write who says so, where somebody does.

    Raises:
        UsageError: they may not, by what the spec says and by who has asked for the delivery.
        Refused: the delivery is over, or a process carries it.
    """
    events = list(deliveries.events(delivery))
    hearing = Hearing(kept_spec(deliveries, delivery, events), delivery, events, at.identities, SystemClock())
    said = hearing.resumption(speaker)
    ledger = deliveries.take_over(delivery)
    # It speaks of all that has happened: where something came in between, it is signed again.
    while said is not None and (now := list(ledger.recorded())) != hearing.events:
        hearing = replace(hearing, events=now)
        said = hearing.resumption(speaker)
    if said is not None:
        ledger.append(said)
    return ledger
