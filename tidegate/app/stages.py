"""A delivery step by step, each step a process of its own, as in a workflow: open, step, close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from pipelines.authority.verification import refuse_too_few_others, refuse_unanswerable, request_of
from pipelines.events.artifacts import keep_spec, refuse_unkeepable
from pipelines.events.history import asked_to_stop, done_steps, outcome_of, plan_of, step_of
from pipelines.events.journal import Journal
from pipelines.events.payloads import StepProgress
from pipelines.events.state import state_of
from pipelines.model import EXIT_CODES, Ending, Plan, PlanStep, Result, StageName
from pipelines.ports import Deliveries, DeliveryLedger, Fleet
from pipelines.run.resume import StepResult, close, say_what_is_lost, take_step
from pipelines.run.stages import STAGES
from pipelines.spec.delivery import Delivery
from pipelines.spec.fleets import LocalFleet
from pipelines.state import StateFolder
from pipelines.statements import Identities, Person, Prover
from registry.model import DeliverySummary
from rollouts.cluster.carrier import Carrier
from rollouts.errors import FleetError
from rollouts.local.watchdog import end_lease, lend
from tidegate.app.git.preview import refuse_unwritable_git
from tidegate.app.plan import adopt_versions, plan_for, resolve_plan
from tidegate.app.process import cancelled_by_signals, note, process_name
from tidegate.app.reports import keep_report
from tidegate.app.wiring.attached import (
    ResumeCredentials,
    attach_delivery,
    authorize_resume,
    require_fleet,
)
from tidegate.app.wiring.backends import open_backends
from tidegate.app.wiring.engines.providers import require_gpus_here
from tidegate.app.wiring.fleets import CarriedFleet, standing_fleets
from tidegate.app.wiring.model import AttachedDelivery
from tidegate.app.wiring.running import DeliveryDisplay, attached_context
from tidegate.app.wiring.services import notifier_for
from tidegate.app.wiring.specs import read_delivery
from tidegate.app.wiring.stores import open_deliveries, open_registry
from tidegate.app.wiring.trust import local_identities, trusted_images
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, Refused, TidegateError, UsageError
from tidegate.core.spec import load_spec


@dataclass(frozen=True)
class StageOpenOptions:
    """What to open, or which delivery to carry on, and for whom."""

    spec: Path
    state: Path
    credentials: ResumeCredentials
    """Who opens it, or carries on the one that is named."""
    tracking_uri: str | None = None
    version: str | None = None
    """The version's number; None for the one that the alias points at."""
    key: str | None = None
    """Opening again with the same key finds the same delivery."""
    delivery: str | None = None
    """Carry on this one instead of opening a new one."""
    patience: timedelta = timedelta(minutes=15)
    """How long the next step may take to start before the delivery counts as dead."""


@dataclass(frozen=True)
class OpenedDelivery:
    """A delivery whose steps can be run."""

    delivery: str
    plan: Plan


def open_stages(options: StageOpenOptions) -> OpenedDelivery:
    """Open the delivery, or carry on the one that is named. Changes no region and no alias.

    Raises:
        Refused: another delivery of the model runs.
    """
    folder = None if options.delivery else options.spec.parent
    deliveries = open_deliveries(options.state, options.tracking_uri, folder)
    ledger = _take_over(deliveries, options) if options.delivery else _open_delivery(deliveries, options)
    return OpenedDelivery(ledger.delivery, plan_of(ledger.recorded()))


def _open_delivery(deliveries: Deliveries, options: StageOpenOptions) -> DeliveryLedger:
    spec = read_delivery(options.spec)
    refuse_unkeepable(spec)
    require_gpus_here(spec)
    asker, trusted = options.credentials.prover, options.credentials.trusted
    refuse_unanswerable(spec, trusted.trust.approvers, requester_known=asker is not None)
    registry = open_registry(options.state, options.tracking_uri)
    adopt_versions(spec, registry, version=options.version)
    plan = plan_for(spec, options.spec.parent, registry, version=options.version)
    plan = resolve_plan(plan, spec, options.spec, registry, trusted_images(trusted))
    refuse_unwritable_git(spec)
    digest = sha256(options.spec.read_bytes()).hexdigest()
    ledger = deliveries.open_delivery(
        plan.version,
        plan.champion,
        spec_digest=digest,
        patience=options.patience,
        key=options.key,
        engines=plan.engine_names,
    )
    # With a key it may have been opened before, by a process that was killed when it had done this or had not.
    if not ledger.recorded():
        asyncio.run(_begin(ledger, spec, plan, _kept_spec_file(ledger, options.spec, spec)))
    if asker is not None:
        refuse = partial(refuse_too_few_others, spec, trusted.trust.approvers)
        _record_requester(ledger, asker, local_identities(trusted), refuse)
    if isinstance(spec.fleet, LocalFleet):
        lend(options.state, SystemClock().now() + options.patience)
    return ledger


def _record_requester(
    ledger: DeliveryLedger, asker: Prover, identities: Identities, refuse: Callable[[Person], None]
) -> None:
    events = ledger.recorded()
    if any(event.kind == "requested" for event in events):
        return
    try:
        now = SystemClock().now()
        ledger.append(request_of(ledger.delivery, events, asker, identities, now, refuse=refuse))
    except TidegateError as error:
        ledger.close(str(Ending.FAILED), str(error))
        raise


def _kept_spec_file(ledger: DeliveryLedger, spec_path: Path, spec: Delivery) -> str | TidegateError:
    """Where the spec lies among the kept files, or why it does not."""
    try:
        return keep_spec(ledger, spec_path, spec)
    except TidegateError as error:
        return error


async def _begin(ledger: DeliveryLedger, spec: Delivery, plan: Plan, kept: str | TidegateError) -> None:
    with notifier_for(spec.notify, plan, ledger) as notifier:
        journal = Journal(ledger, SystemClock(), [notifier])
        try:
            if isinstance(kept, TidegateError):
                raise kept
            await journal.opened(plan, spec_file=kept)
        except TidegateError as error:
            # No step could ever find its way; the next delivery must not have to wait for this one.
            await journal.closed(Ending.FAILED, str(error), error.exit_code)
            raise


def _take_over(deliveries: Deliveries, options: StageOpenOptions) -> DeliveryLedger:
    assert options.delivery is not None, "only a delivery that is named can be carried on"
    delivery = deliveries.whole_id(options.delivery)
    if options.key and deliveries.summary(delivery).key == options.key:
        return deliveries.join(delivery)
    resumed = authorize_resume(options.credentials, deliveries, delivery)
    ledger = deliveries.take_over(delivery, patience=options.patience, key=options.key)
    if resumed is not None:
        ledger.append(resumed)
    attached = attach_delivery(
        deliveries, ledger, options.state, options.tracking_uri, patience=options.patience, key=options.key
    )
    asyncio.run(_report_lost_steps(attached))
    return ledger


async def _report_lost_steps(attached: AttachedDelivery) -> None:
    """What the regions no longer show is not done, whatever the ledger said before."""
    await require_fleet(attached)
    async with attached_context(attached, STAGES, open_backends, [], hands_on=True) as context:
        await context.journal.say("delivery", StepProgress(), "carried on step by step")
        await say_what_is_lost(context)


AFTERWARDS = "`tidegate stage close` takes the regions back"


def step_id(step: str, *, region: str | None, weight: int | None, wave: int | None) -> str:
    """The id that is meant: as it is written, or put together from a stage's name and where."""
    if (region, weight, wave) == (None, None, None):
        return step
    if step not in list(StageName):
        raise UsageError(f"`{step}` is no stage", hint=f"one of: {', '.join(StageName)}; or a step's whole id")
    return PlanStep(stage=StageName(step), region=region, weight=weight, wave=wave or 0).id


@dataclass(frozen=True)
class StageStepOptions:
    """Which step of which delivery, and for whom."""

    step: str
    delivery: str
    state: Path
    tracking_uri: str | None = None
    key: str | None = None
    """Of the one who opened or carried on the delivery; None says nothing of it."""


def run_stage(options: StageStepOptions, display: DeliveryDisplay) -> StepResult:
    """Run one step of a delivery that `open_stages` opened; a finished step is skipped.

    Raises:
        Refused: the delivery is over, or others carry it.
    """
    deliveries = open_deliveries(options.state, options.tracking_uri)
    delivery = deliveries.whole_id(options.delivery)
    # Joined first: the one who takes the delivery over after this look is another owner, and this ledger is refused.
    ledger = deliveries.join(delivery)
    summary = deliveries.summary(delivery)
    events = ledger.recorded()
    step = step_of(plan_of(events), options.step)
    if step.id in done_steps(events):
        return StepResult(step=step.id, done=True, reason="done before", exit_code=ExitCode.DELIVERED)
    if summary.ended is not None:
        raise Refused(
            f"delivery {delivery} is over: {summary.outcome}: {summary.reason}",
            hint="`tidegate deliver` begins another",
        )
    if options.key is not None and summary.key != options.key:
        raise Refused(
            f"delivery {delivery} was carried on by somebody else since: it has another key than {options.key}",
            hint="see `tidegate status`; its steps are that one's now",
        )
    if not summary.patience_seconds:
        raise Refused(
            f"delivery {delivery} is carried by process {summary.pid} on {summary.host}",
            hint="`tidegate stage` is for deliveries that `tidegate stage open` opened",
        )
    patience = timedelta(seconds=summary.patience_seconds)
    attached = attach_delivery(
        deliveries, ledger, options.state, options.tracking_uri, patience=patience, key=summary.key
    )
    display.story = state_of(events)
    try:
        return asyncio.run(_run_step(attached, step.id, display))
    except asyncio.CancelledError:
        return _stopped(ledger, step)


def _stopped(ledger: DeliveryLedger, step: PlanStep) -> StepResult:
    """What becomes of a step that was stopped before it began: nothing was changed.

    Worth another try when its machine was taken away, and not when somebody asked the whole delivery to end.
    """
    asked = asked_to_stop(ledger.recorded())
    code = ExitCode.INTERRUPTED if asked else ExitCode.OUTSIDE
    return StepResult(step=step.id, done=False, reason=asked or "asked to stop before it began", exit_code=code)


async def _run_step(attached: AttachedDelivery, step: str, display: DeliveryDisplay) -> StepResult:
    await require_fleet(attached)
    with display:
        async with (
            cancelled_by_signals(AFTERWARDS),
            attached_context(attached, STAGES, open_backends, [display], hands_on=True) as context,
        ):
            return await take_step(context, step)


@dataclass(frozen=True)
class StageCloseOptions:
    """Which delivery to end: by its id, or by the key with which it was opened."""

    state: Path
    tracking_uri: str | None = None
    delivery: str | None = None
    key: str | None = None
    spec: Path = Path("delivery.yaml")
    """With a key: the delivery's spec."""


def close_stages(options: StageCloseOptions, display: DeliveryDisplay) -> Result | None:
    """End a delivery: delivered when every step is done, else every region goes back. Idempotent.

    With a key users come first: whatever the delivery has on trial is taken back by what the regions say, before
    anything is read in MLflow, which may be away, or not what was written there.

    Returns:
        How it ended; None when nothing was opened with the key.

    Raises:
        StoreUnreachable: MLflow is away.
        NotGenuine: the ledger, or what is kept with it, is not what the delivery wrote.
    """
    if options.key and not (options.delivery and not options.spec.exists()):
        asyncio.run(_end_trials(load_spec(options.spec, Delivery), options.state, options.key))
    return _close_recorded(options, display)


def _close_recorded(options: StageCloseOptions, display: DeliveryDisplay) -> Result | None:
    deliveries = open_deliveries(options.state, options.tracking_uri)
    delivery = _named_delivery(options, deliveries)
    if delivery is None:
        return None
    summary = deliveries.summary(delivery)
    ledger = deliveries.join(delivery)
    if summary.ended is not None:
        return outcome_of(ledger.recorded(), delivery) or _recorded_result(summary)
    patience = timedelta(seconds=summary.patience_seconds)
    attached = attach_delivery(
        deliveries, ledger, options.state, options.tracking_uri, patience=patience, key=summary.key
    )
    display.story = state_of(ledger.recorded())
    try:
        result = asyncio.run(_close_delivery(attached, display))
    except asyncio.CancelledError:
        # Before the rollback began: nothing was changed, and the command can be repeated.
        raise KeyboardInterrupt from None
    keep_report(attached.spec, attached.state, attached.ledger)
    end_lease(options.state)
    return result


def _named_delivery(options: StageCloseOptions, deliveries: Deliveries) -> str | None:
    """The delivery's id; None when nothing was opened with the key."""
    if options.delivery:
        return deliveries.whole_id(options.delivery)
    if not options.key:
        raise UsageError("which delivery?", hint="name it by --delivery, or by --key and its spec")
    model = load_spec(options.spec, Delivery).model.name
    # The newest: a workflow that is retried after its end opens another delivery with the same key.
    return next((each.id for each in deliveries.deliveries(model) if each.key == options.key), None)


async def _close_delivery(attached: AttachedDelivery, display: DeliveryDisplay) -> Result:
    await require_fleet(attached)
    with display:
        async with (
            cancelled_by_signals() as impatient,
            attached_context(attached, STAGES, open_backends, [display], impatient, closes=True) as context,
        ):
            return await close(context)


PATIENCE = timedelta(seconds=30)
"""For a region that does not answer, before the records are read; then it has the spec's own."""


async def _end_trials(spec: Delivery, state: Path, key: str) -> None:
    """Take back what processes of the delivery with that key have on trial; a successor's, and nobody's, stays.

    On this machine the fleet's host does it, once `delivery.lease` has run out.
    """
    if isinstance(spec.fleet, LocalFleet):
        return
    carrier = Carrier(
        token=uuid4().hex, who=process_name(), key=key, unattended_seconds=spec.fleet.unattended.total_seconds()
    )
    async with standing_fleets(spec, StateFolder(state), patience=PATIENCE, carrier=carrier) as fleets:
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
