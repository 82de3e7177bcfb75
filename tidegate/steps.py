"""A delivery step by step, each step a process of its own, as in a workflow: open, step, close."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

from pipelines.adapters.fleets import running_host
from pipelines.adapters.services import notified_of
from pipelines.adapters.specs import read_delivery
from pipelines.authority.answering import Hearing
from pipelines.events.artifacts import keep_spec, refuse_unkeepable
from pipelines.events.journal import Journal
from pipelines.events.listeners import DeliveryDisplay
from pipelines.events.state import asked_to_stop, done_steps, outcome_of, plan_of, state_of, step_of
from pipelines.model import EXIT_CODES, Ending, Plan, Result
from pipelines.ports import CarriedFleet, Fleet
from pipelines.run.context import Context
from pipelines.run.resume import StepResult, close, take_step
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import LocalFleet
from pipelines.statements import Prover
from registry.deliveries import refuse_ended
from registry.ledger import MlflowLedger
from registry.model import Event
from rollouts.cluster.carrier import Carrier
from rollouts.errors import FleetError
from rollouts.local.locks import end_lease, lend
from tidegate.connect import Carried, Carrying, Lies, preconditions, refuse
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, Refused, TidegateError, UsageError
from tidegate.core.process import cancelled_by_signals, note, process_name
from tidegate.core.spec import load_spec
from tidegate.core.threads import call_in_thread
from tidegate.delivering import Done, attach, carry, open_ledger
from tidegate.planning import plan_for, settle
from tidegate.surroundings import RETREAT, Surroundings


def open_steps(
    at: Surroundings,
    spec_path: Path,
    *,
    prover: Prover | None = None,
    version: str | None = None,
    key: str | None = None,
    patience: timedelta = timedelta(minutes=15),
) -> tuple[str, Plan]:
    """Open a delivery of a version, by its number or by the alias; returns its id and its plan.

    Changes no region and no alias. `prover` proves who asks for it. Opening again with the same `key` finds the same
    delivery. It counts as dead when the next step takes longer to start than `patience`.

    Raises:
        Refused: another delivery of the model runs.
    """
    deliveries = at.deliveries()
    spec = read_delivery(spec_path)
    refuse_unkeepable(spec)
    preview = plan_for(spec, at.registry, version=version, preview=True)
    # What is wrong here is not: the pod that opens a delivery is not the machine that serves it, and with the same key
    # it may have opened it before.
    refuse(each for each in preconditions(at, spec, preview, asker=prover) if each.lies is not Lies.HERE)
    plan = settle(at, spec, version=version)
    ledger = open_ledger(deliveries, spec, plan, patience=patience, key=key)
    asyncio.run(_begin(at, ledger, spec, plan, prover))
    if isinstance(spec.fleet, LocalFleet):
        lend(at.root, SystemClock().now() + patience)
    return ledger.delivery, plan_of(ledger.recorded())


async def _begin(at: Surroundings, ledger: MlflowLedger, spec: Delivery, plan: Plan, asker: Prover | None) -> None:
    # With a key it may have been opened before, by a process that was killed when it had done this or had not.
    events: Sequence[Event] = await call_in_thread(ledger.recorded)
    with notified_of(spec.notify, plan, ledger) as told:
        journal = Journal(ledger, SystemClock(), told)
        try:
            if not events:
                kept = await call_in_thread(keep_spec, ledger, spec.path, spec)
                await journal.opened(plan, spec_file=kept)
                events = await journal.recorded()
            if asker is not None and not any(event.kind == "requested" for event in events):
                hearing = Hearing(spec, ledger.delivery, events, at.identities, SystemClock())
                event = await call_in_thread(hearing.request, asker)
                await journal.record(event)
        except TidegateError as error:
            # No step could ever find its way; the next delivery must not have to wait for this one.
            await journal.closed(Ending.FAILED, str(error), error.exit_code)
            raise


async def _carry_on(carried: Carried, how: Carrying, work: Callable[[Context], Awaitable[Done]]) -> Done:
    # One that a step starts would end with the step.
    if isinstance(carried.spec.fleet, LocalFleet) and await running_host(carried.at.root) is None:
        raise Refused("no fleet runs here", hint="start it with `tidegate fleet up --detach`")
    return await carry(carried, how, work)


AFTERWARDS = "`tidegate stage close` takes the regions back"


def run_one_step(
    at: Surroundings, delivery: str, step_name: str, display: DeliveryDisplay, *, key: str | None = None
) -> StepResult:
    """Run one step of a delivery that `open_steps` opened; a finished step is skipped.

    `delivery` is its id, or the first characters of it, `key` that of the one who opened it or carried it on, if any.

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
    refuse_ended(summary)
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
    carried = attach(at, deliveries, ledger, summary, hands_on=True)
    display.story = state_of(events)
    how = Carrying(display, partial(cancelled_by_signals, AFTERWARDS), report=False)
    try:
        return asyncio.run(_carry_on(carried, how, partial(take_step, wanted=step.id)))
    except asyncio.CancelledError:
        # Before it began: nothing was changed. Worth another try when its machine was taken away, and not when somebody
        # asked the whole delivery to end.
        asked = asked_to_stop(ledger.recorded())
        code = ExitCode.INTERRUPTED if asked else ExitCode.OUTSIDE
        return StepResult(step=step.id, done=False, reason=asked or "asked to stop before it began", exit_code=code)


def close_steps(
    at: Surroundings, spec_path: Path, display: DeliveryDisplay, *, delivery: str | None = None, key: str | None = None
) -> Result | None:
    """End a delivery: delivered when every step is done, else every region goes back. Idempotent.

    With a key users come first: whatever the delivery has on trial is rolled back by what the regions say, before
    anything is read in MLflow, which may be away, or not what was written there. It is named by its id or the first
    characters of it, or by the key with which it was opened and its spec.

    Returns:
        How it ended; None when nothing was opened with the key.

    Raises:
        StoreUnreachable: MLflow is away.
        NotGenuine: the ledger, or what is kept with it, is not what the delivery wrote.
    """
    if not (delivery or key):
        raise UsageError("which delivery?", hint="name it by --delivery, or by --key and its spec")
    spec = load_spec(spec_path, Delivery) if key and (not delivery or spec_path.exists()) else None
    if spec and key and not isinstance(spec.fleet, LocalFleet):
        asyncio.run(_end_trials(spec, at, key))
    deliveries = at.deliveries()
    if delivery:
        named = deliveries.whole_id(delivery)
    else:
        # The newest: a workflow that is retried after its end opens another delivery with the same key.
        known = deliveries.deliveries(spec.model.name) if spec else ()
        named = next((each.id for each in known if each.key == key), "")
    if not named:
        return None
    summary = deliveries.summary(named)
    ledger = deliveries.join(named)
    if summary.ended is not None:
        ending, reason = Ending.recorded(summary.outcome), summary.reason or ""
        recorded = Result(delivery=named, ending=ending, reason=reason, exit_code=EXIT_CODES[ending])
        return outcome_of(ledger.recorded(), named) or recorded
    carried = attach(at, deliveries, ledger, summary, hands_on=False)
    display.story = state_of(ledger.recorded())
    try:
        result = asyncio.run(_carry_on(carried, Carrying(display, cancelled_by_signals, closes=True), close))
    except asyncio.CancelledError:
        # Before the rollback began: nothing was changed, and the command can be repeated.
        raise KeyboardInterrupt from None
    end_lease(at.root)
    return result


async def _end_trials(spec: Delivery, at: Surroundings, key: str) -> None:
    """Take back what processes of the delivery with that key have on trial; a successor's, and nobody's, stays.

    On this machine the fleet's host does it, once `delivery.lease` has run out.
    """
    carrier = Carrier(
        token=uuid4().hex, who=process_name(), key=key, unattended_seconds=spec.fleet.unattended.total_seconds()
    )

    async def end(fleet: Fleet) -> None:
        try:
            held = await fleet.carried() if isinstance(fleet, CarriedFleet) else None
            if held and held.key == key:
                state = await fleet.rollback(None)
                back = f"version {state.stable.version} serves all users" if state.stable and not state.weight else ""
                note(f"{fleet.region}: nothing is on trial any more; {back or 'not back yet'}")
        except FleetError as error:
            note(f"{fleet.region}: could not be rolled back: {error}")

    async with at.fleets(spec, patience=RETREAT, carrier=carrier) as fleets:
        await asyncio.gather(*map(end, fleets.values()))
