"""A delivery step by step, each step a process of its own, as in a workflow: open, step, close."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

from pipelines.adapters.fleets import CarriedFleet, running_host
from pipelines.adapters.services import notified_of
from pipelines.adapters.specs import read_delivery
from pipelines.authority.answering import Hearing, Speaker
from pipelines.events.artifacts import keep_spec, refuse_unkeepable
from pipelines.events.history import asked_to_stop, done_steps, outcome_of, plan_of, step_of
from pipelines.events.journal import Journal
from pipelines.events.payloads import StepProgress
from pipelines.events.state import state_of
from pipelines.model import EXIT_CODES, Ending, Plan, PlanStep, Result, StageName
from pipelines.ports import Fleet
from pipelines.run.context import Context
from pipelines.run.resume import StepResult, close, say_what_is_lost, take_step
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import LocalFleet
from pipelines.statements import Prover
from registry.deliveries import MlflowDeliveries
from registry.ledger import MlflowLedger
from registry.model import DeliverySummary
from rollouts.cluster.carrier import Carrier
from rollouts.errors import FleetError
from rollouts.local.locks import end_lease, lend
from tidegate.carrying import (
    Carrying,
    DeliveryDisplay,
    Done,
    Listening,
    attach,
    carry,
    open_ledger,
    take_over,
)
from tidegate.connect import Carried, Lies, preconditions_here, preconditions_of, refuse
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, Refused, TidegateError, UsageError
from tidegate.core.process import cancelled_by_signals, note, process_name, uninterrupted
from tidegate.core.spec import load_spec
from tidegate.core.threads import call_in_thread
from tidegate.planning import plan_for, settle
from tidegate.surroundings import RETREAT, Surroundings


def open_steps(
    at: Surroundings,
    spec_path: Path,
    *,
    carries_on: str | None = None,
    by: str | None = None,
    prover: Prover | None = None,
    version: str | None = None,
    key: str | None = None,
    patience: timedelta = timedelta(minutes=15),
) -> tuple[str, Plan]:
    """Open a delivery, or carry on the one that is named. Changes no region and no alias.

    Args:
        at: where.
        spec_path: of the delivery's spec.
        carries_on: the delivery of another process, instead of a new one.
        by: who carries it on, where the spec says that a name is enough.
        prover: proves who does, or who asks for a new one.
        version: the version's number; None for the one that the alias points at.
        key: opening again with the same key finds the same delivery.
        patience: how long the next step may take to start before the delivery counts as dead.

    Returns:
        Its id, and its plan.

    Raises:
        Refused: another delivery of the model runs.
    """
    deliveries = at.deliveries()
    if carries_on is not None:
        delivery = deliveries.whole_id(carries_on)
        ledger = _carried_on(at, deliveries, delivery, Speaker(by, prover), patience=patience, key=key)
    else:
        ledger = _opened(at, deliveries, read_delivery(spec_path), prover, version=version, key=key, patience=patience)
    return ledger.delivery, plan_of(ledger.recorded())


def _opened(
    at: Surroundings,
    deliveries: MlflowDeliveries,
    spec: Delivery,
    asker: Prover | None,
    *,
    version: str | None,
    key: str | None,
    patience: timedelta,
) -> MlflowLedger:
    refuse_unkeepable(spec)
    preview = plan_for(spec, spec.path.parent, at.registry, version=version, preview=True)
    # What is wrong here is not: the pod that opens a delivery is not the machine that serves it, and with the same key
    # it may have opened it before.
    found = (*preconditions_here(at, spec, asker=asker), *preconditions_of(at, spec, preview))
    refuse(each for each in found if each.lies is not Lies.HERE)
    plan = settle(at, spec, version=version)
    ledger = open_ledger(deliveries, spec, plan, patience=patience, key=key)
    # With a key it may have been opened before, by a process that was killed when it had done this or had not.
    if not ledger.recorded():
        asyncio.run(_begin(ledger, spec, plan))
    if asker is not None:
        _record_requester(at, ledger, spec, asker)
    if isinstance(spec.fleet, LocalFleet):
        lend(at.root, SystemClock().now() + patience)
    return ledger


def _record_requester(at: Surroundings, ledger: MlflowLedger, spec: Delivery, asker: Prover) -> None:
    events = ledger.recorded()
    if any(event.kind == "requested" for event in events):
        return
    try:
        ledger.append(Hearing(spec, ledger.delivery, events, at.identities, SystemClock()).request(asker))
    except TidegateError as error:
        ledger.close(str(Ending.FAILED), str(error))
        raise


async def _begin(ledger: MlflowLedger, spec: Delivery, plan: Plan) -> None:
    with notified_of(spec.notify, plan, ledger) as told:
        journal = Journal(ledger, SystemClock(), told)
        try:
            kept = await call_in_thread(keep_spec, ledger, spec.path, spec)
            await journal.opened(plan, spec_file=kept)
        except TidegateError as error:
            # No step could ever find its way; the next delivery must not have to wait for this one.
            await journal.closed(Ending.FAILED, str(error), error.exit_code)
            raise


def _carried_on(
    at: Surroundings,
    deliveries: MlflowDeliveries,
    delivery: str,
    speaker: Speaker,
    *,
    patience: timedelta,
    key: str | None,
) -> MlflowLedger:
    if key and deliveries.summary(delivery).key == key:
        return deliveries.join(delivery)
    ledger = take_over(at, deliveries, delivery, speaker, patience=patience, key=key)
    carried = attach(at, deliveries, ledger, patience=patience, key=key, hands_on=True)
    asyncio.run(_report_lost_steps(carried))
    return ledger


async def _report_lost_steps(carried: Carried) -> None:
    """What the regions no longer show is not done, whatever the ledger said before."""

    async def say(context: Context) -> None:
        await context.journal.say("delivery", StepProgress(), "carried on step by step")
        await say_what_is_lost(context)

    await _carry_on(carried, Carrying(Listening(), uninterrupted, report=False), say)


async def _carry_on(carried: Carried, how: Carrying, work: Callable[[Context], Awaitable[Done]]) -> Done:
    # One that a step starts would end with the step.
    if isinstance(carried.spec.fleet, LocalFleet) and await running_host(carried.at.root) is None:
        raise Refused("no fleet runs here", hint="start it with `tidegate fleet up --detach`")
    return await carry(carried, how, work)


AFTERWARDS = "`tidegate stage close` takes the regions back"


def step_id(step: str, *, region: str | None, weight: int | None, wave: int | None) -> str:
    """The id that is meant: as it is written, or put together from a stage's name and where."""
    if (region, weight, wave) == (None, None, None):
        return step
    if step not in list(StageName):
        raise UsageError(f"`{step}` is no stage", hint=f"one of: {', '.join(StageName)}; or a step's whole id")
    return PlanStep(stage=StageName(step), region=region, weight=weight, wave=wave or 0).id


def run_one_step(
    at: Surroundings, delivery: str, step_name: str, display: DeliveryDisplay, *, key: str | None = None
) -> StepResult:
    """Run one step of a delivery that `open_steps` opened; a finished step is skipped.

    Args:
        at: where.
        delivery: its id, or the first characters of it.
        step_name: the step's id.
        display: follows it.
        key: of the one who opened or carried on the delivery; None says nothing of it.

    Raises:
        Refused: the delivery is over, or others carry it.
    """
    deliveries = at.deliveries()
    delivery = deliveries.whole_id(delivery)
    # Joined first: the one who takes the delivery over after this look is another owner, and this ledger is refused.
    ledger = deliveries.join(delivery)
    summary = deliveries.summary(delivery)
    events = ledger.recorded()
    step = step_of(plan_of(events), step_name)
    if step.id in done_steps(events):
        return StepResult(step=step.id, done=True, reason="done before", exit_code=ExitCode.DELIVERED)
    if summary.ended is not None:
        raise Refused(
            f"delivery {delivery} is over: {summary.outcome}: {summary.reason}",
            hint="`tidegate deliver` begins another",
        )
    if key is not None and summary.key != key:
        raise Refused(
            f"delivery {delivery} was carried on by somebody else since: it has another key than {key}",
            hint="see `tidegate status`; its steps are that one's now",
        )
    if not summary.patience_seconds:
        raise Refused(
            f"delivery {delivery} is carried by process {summary.pid} on {summary.host}",
            hint="`tidegate stage` is for deliveries that `tidegate stage open` opened",
        )
    patience = timedelta(seconds=summary.patience_seconds)
    carried = attach(at, deliveries, ledger, patience=patience, key=summary.key, hands_on=True)
    display.story = state_of(events)
    how = Carrying(display, partial(cancelled_by_signals, AFTERWARDS), report=False)
    try:
        return asyncio.run(_carry_on(carried, how, partial(take_step, wanted=step.id)))
    except asyncio.CancelledError:
        return _stopped(ledger, step)


def _stopped(ledger: MlflowLedger, step: PlanStep) -> StepResult:
    """What becomes of a step that was stopped before it began: nothing was changed.

    Worth another try when its machine was taken away, and not when somebody asked the whole delivery to end.
    """
    asked = asked_to_stop(ledger.recorded())
    code = ExitCode.INTERRUPTED if asked else ExitCode.OUTSIDE
    return StepResult(step=step.id, done=False, reason=asked or "asked to stop before it began", exit_code=code)


def close_steps(
    at: Surroundings, spec_path: Path, display: DeliveryDisplay, *, delivery: str | None = None, key: str | None = None
) -> Result | None:
    """End a delivery: delivered when every step is done, else every region goes back. Idempotent.

    With a key users come first: whatever the delivery has on trial is taken back by what the regions say, before
    anything is read in MLflow, which may be away, or not what was written there.

    Args:
        at: where.
        spec_path: with a key: the delivery's spec.
        display: follows it.
        delivery: its id, or the first characters of it.
        key: in place of the id: that with which it was opened.

    Returns:
        How it ended; None when nothing was opened with the key.

    Raises:
        StoreUnreachable: MLflow is away.
        NotGenuine: the ledger, or what is kept with it, is not what the delivery wrote.
    """
    if key and not (delivery and not spec_path.exists()):
        asyncio.run(_end_trials(load_spec(spec_path, Delivery), at, key))
    deliveries = at.deliveries()
    named = _named_delivery(deliveries, spec_path, delivery, key)
    if named is None:
        return None
    summary = deliveries.summary(named)
    ledger = deliveries.join(named)
    if summary.ended is not None:
        return outcome_of(ledger.recorded(), named) or _recorded_result(summary)
    patience = timedelta(seconds=summary.patience_seconds)
    carried = attach(at, deliveries, ledger, patience=patience, key=summary.key)
    display.story = state_of(ledger.recorded())
    try:
        result = asyncio.run(_carry_on(carried, Carrying(display, cancelled_by_signals, closes=True), close))
    except asyncio.CancelledError:
        # Before the rollback began: nothing was changed, and the command can be repeated.
        raise KeyboardInterrupt from None
    end_lease(at.root)
    return result


def _named_delivery(deliveries: MlflowDeliveries, spec_path: Path, delivery: str | None, key: str | None) -> str | None:
    """The delivery's id; None when nothing was opened with the key."""
    if delivery:
        return deliveries.whole_id(delivery)
    if not key:
        raise UsageError("which delivery?", hint="name it by --delivery, or by --key and its spec")
    model = load_spec(spec_path, Delivery).model.name
    # The newest: a workflow that is retried after its end opens another delivery with the same key.
    return next((each.id for each in deliveries.deliveries(model) if each.key == key), None)


async def _end_trials(spec: Delivery, at: Surroundings, key: str) -> None:
    """Take back what processes of the delivery with that key have on trial; a successor's, and nobody's, stays.

    On this machine the fleet's host does it, once `delivery.lease` has run out.
    """
    if isinstance(spec.fleet, LocalFleet):
        return
    carrier = Carrier(
        token=uuid4().hex, who=process_name(), key=key, unattended_seconds=spec.fleet.unattended.total_seconds()
    )
    async with at.fleets(spec, patience=RETREAT, carrier=carrier) as fleets:
        await asyncio.gather(*(_end_trial(region, fleet, key) for region, fleet in fleets.items()))


async def _end_trial(region: str, fleet: Fleet, key: str) -> None:
    try:
        held = await fleet.carried() if isinstance(fleet, CarriedFleet) else None
        if held is None or held.key != key:
            return
        found = await fleet.rollback(None)
    except FleetError as error:
        note(f"{region}: could not be taken back: {error}")
        return
    serves = f"version {found.stable.version} serves all users" if found.stable and not found.weight else "not back yet"
    note(f"{region}: nothing is on trial any more; {serves}")


def _recorded_result(summary: DeliverySummary) -> Result:
    ending = Ending.recorded(summary.outcome)
    return Result(delivery=summary.id, ending=ending, reason=summary.reason or "", exit_code=EXIT_CODES[ending])
