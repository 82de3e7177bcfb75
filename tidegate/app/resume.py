"""A delivery that another process opened: attach to it, with all that is needed to go on, and carry it to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from pipelines.adapters.lock import delivery_lock
from pipelines.authority.approvals import ledger_digest, plan_digest
from pipelines.authority.verification import USED, AnswerVerifier, first_uses, refuse_heir, used_before
from pipelines.events.artifacts import SPEC, Trials, bring_evidence, bring_spec, owed, vouched
from pipelines.events.history import plan_of, spec_file_of
from pipelines.events.journal import Journal, Listener
from pipelines.events.listeners import EventFile, QueuedListener
from pipelines.events.payloads import DeliveryResumed
from pipelines.events.state import state_of
from pipelines.events.writer import WriterLimits, limits_of
from pipelines.model import Plan, Result
from pipelines.plan.planner import refuse_other_files, refuse_other_plan
from pipelines.run.context import Context
from pipelines.run.resume import resume as resume_plan
from pipelines.spec.delivery import Delivery, LocalFleet
from pipelines.spec.policy import golden_set
from pipelines.spec.trust import Trusted
from pipelines.state import StateFolder
from pipelines.statements import NAMED, RESUME, Person, Proof, Prover, Statement
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_ledger import MlflowLedger
from registry.model import Event
from registry.model_files import digest_files
from rollouts.adapters.host_client import attach
from rollouts.local.watchdog import end_lease, lend
from tidegate.app.deliver import (
    DeliveryDisplay,
    DeliveryOutcome,
    Interrupts,
    Recording,
    delivery_context,
    heartbeat,
    journal_of,
    report_path,
    uncancelled,
)
from tidegate.app.process import cancelled_by_signals, note
from tidegate.app.reports import LedgerEvents, leave_report
from tidegate.app.wiring.backends import BackendsOpener, DeliveryInputs, open_backends
from tidegate.app.wiring.engines import trusted_images
from tidegate.app.wiring.fleets import carrier_of
from tidegate.app.wiring.services import local_identities, notifier_for
from tidegate.app.wiring.specs import kept_spec, read_delivery
from tidegate.app.wiring.stores import open_deliveries, open_registry
from tidegate.core.clock import SystemClock
from tidegate.core.errors import Refused, TidegateError, UsageError
from tidegate.core.threads import call_in_thread


@dataclass(frozen=True)
class ResumeOptions:
    """Which delivery to carry to its end, and who does."""

    delivery: str
    state: Path
    credentials: ResumeCredentials
    tracking_uri: str | None = None
    opener: BackendsOpener = open_backends


def resume(options: ResumeOptions, display: DeliveryDisplay) -> DeliveryOutcome:
    """Carry a delivery whose process died to its end, here; finished steps are skipped.

    Raises:
        TidegateError: it is over or is carried by a process, its spec was not kept, or the caller is not entitled.
    """
    with delivery_lock(StateFolder(options.state).lock):
        attached = _taken_over(options)
        display.story = state_of(attached.ledger.recorded())
        result = asyncio.run(_resume(attached, display, cancelled_by_signals))
        keep_report(attached)
    return DeliveryOutcome(result, report_path(attached.state, options.delivery))


async def resume_delivery(options: ResumeOptions, display: DeliveryDisplay, interrupts: Interrupts) -> DeliveryOutcome:
    """As `resume`, in an event loop of the caller's, who has the signals too.

    Raises:
        TidegateError: as `resume`.
    """
    with delivery_lock(StateFolder(options.state).lock):
        attached = await uncancelled(call_in_thread(_taken_over, options))
        display.story = state_of(await uncancelled(call_in_thread(attached.ledger.recorded)))
        result = await _resume(attached, display, interrupts)
        await call_in_thread(keep_report, attached)
    return DeliveryOutcome(result, report_path(attached.state, options.delivery))


def _taken_over(options: ResumeOptions) -> AttachedDelivery:
    """Carried by this process from here on, which holds the lock: without it no other may be kept from it."""
    state, credentials = options.state, options.credentials
    deliveries = open_deliveries(state, options.tracking_uri)
    resumed = authorize_resume(credentials, deliveries, options.delivery)
    ledger = deliveries.take_over(options.delivery)
    if resumed is not None:
        ledger.append(resumed)
    attached = attach_delivery(
        deliveries, ledger, state, options.tracking_uri, credentials.trusted, patience=timedelta(0)
    )
    # The lock is the sign of life from here on.
    end_lease(attached.state.root)
    return replace(attached, opener=options.opener)


async def _resume(attached: AttachedDelivery, display: DeliveryDisplay, interrupts: Interrupts) -> Result:
    listeners: list[Listener] = [display]
    events = EventFile(attached.folder / "events.jsonl")
    # Only where it began: elsewhere the ledger has more of the delivery than a file that begins now.
    if events.path.exists():
        listeners.insert(0, events)
    with display:
        async with (
            interrupts() as impatient,
            attached_context(attached, listeners, impatient) as context,
        ):
            return await resume_plan(context)


@dataclass(frozen=True)
class ResumeCredentials:
    """Who wants to carry on a delivery, and how they prove it."""

    by: str | None
    """A name, where the spec says that one is enough."""
    prover: Prover | None
    trusted: Trusted


def authorize_resume(credentials: ResumeCredentials, deliveries: MlflowDeliveries, delivery: str) -> Event | None:
    """The event that says who carries the delivery on, to be written once that is so; None when nobody said it.

    Raises:
        UsageError: they may not, by what the spec says and by who has asked for the delivery.
    """
    events = deliveries.events(delivery)
    spec = kept_spec(deliveries, delivery, events)
    identities = local_identities(credentials.trusted)
    requester = asyncio.run(AnswerVerifier(identities).requester(delivery, events))
    unproven = any((event.step, event.kind) == ("delivery", "requested") for event in events) and requester is None
    prover, now = credentials.prover, SystemClock().now()
    if prover is not None and credentials.by is not None:
        raise UsageError("--by is for a name without proof", hint="leave it out: the key or the token says who it is")
    proof: Proof | None = None
    person: Person | None = None
    if prover is not None:
        proof = prover.prove(_resume_statement(delivery, events))
        person = identities.verify(proof, now)
        if used_before(person, proof, first_uses(events)):
            raise UsageError(USED, hint="have a new one issued")
    refuse_heir(spec.resume, person, credentials.by, requester, unproven=unproven)
    if person is None and credentials.by is None:
        return None
    who = str(person) if person else f"{credentials.by} ({NAMED})"
    proven = {"proof": proof} if proof else {}
    resumed = DeliveryResumed(by=person.identity if person else credentials.by or "", **proven)
    return resumed.event(now, "delivery", who)


def _resume_statement(delivery: str, events: Sequence[Event]) -> str:
    """Of all that has happened until now: it cannot be repeated of what happens later."""
    version = plan_of(events).version
    return Statement(
        says="resume",
        question=RESUME,
        delivery=delivery,
        model=version.name,
        version=version.version,
        plan=plan_digest(events),
        evidence=ledger_digest(events),
        at=SystemClock().now(),
    ).text


@dataclass(frozen=True)
class AttachedDelivery:
    """What the ledger and the files next to it say."""

    ledger: MlflowLedger
    plan: Plan
    spec: Delivery
    spec_path: Path
    spec_file: str
    state: StateFolder
    tracking_uri: str | None
    trusted: Trusted
    patience: timedelta
    """Until the next process must be heard of; zero when this one carries the delivery to its end."""
    opener: BackendsOpener = open_backends

    @property
    def limits(self) -> WriterLimits:
        """A process of many may lose its disk with its end: what it could not write it must wait for."""
        usual = limits_of(self.spec.patience)
        return replace(usual, end=usual.patience) if self.patience else usual

    @property
    def folder(self) -> Path:
        """What is the delivery's own on this machine."""
        return self.state.delivery(self.ledger.delivery)


def attach_delivery(
    deliveries: MlflowDeliveries,
    ledger: MlflowLedger,
    state: Path,
    tracking_uri: str | None,
    trusted: Trusted,
    *,
    patience: timedelta,
) -> AttachedDelivery:
    """Read the plan, and bring the spec and the evidence attached.

    Raises:
        UsageError: they were not kept.
        NotAsPlanned: they are not those with which the delivery was opened.
    """
    events, folder = ledger.recorded(), StateFolder(state)
    plan, spec_file = plan_of(events), spec_file_of(events)
    if spec_file is None:
        raise UsageError(f"the spec of delivery {ledger.delivery} was not kept", hint="deliver the version again")
    own = folder.delivery(ledger.delivery)
    path = bring_spec(deliveries, ledger.delivery, spec_file, own)
    refuse_other_files(plan.resolved, digest_files(own / SPEC), spec_file, ledger.delivery)
    spec = read_delivery(path, kept_below=own / SPEC)
    refuse_other_plan(plan, spec, prompts=len(golden_set(spec, path.parent)), delivery=ledger.delivery)
    bring_evidence(deliveries, ledger.delivery, own, vouched(events), owed(events))
    return AttachedDelivery(ledger, plan, spec, path, spec_file, folder, tracking_uri, trusted, patience)


@asynccontextmanager
async def attached_context(
    attached: AttachedDelivery,
    listeners: list[Listener],
    impatient: asyncio.Event | None = None,
    *,
    hands_on: bool = False,
) -> AsyncIterator[Context]:
    """The delivery's surroundings; its heart beats inside, and a canary on this machine may stay.

    `impatient` is set when a person waits no longer for regions that do not let themselves be taken back. Anyone who
    `hands_on` leaves the delivery to its next process.
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
            attached.ledger, attached.spec, patience=attached.patience, hands_on=hands_on, continues=True
        ),
    )
    with (
        notifier_for(attached.spec.notify, attached.plan, attached.ledger) as notifier,
        QueuedListener(listeners) as displays,
        journal_of(inputs, attached.ledger, [displays, notifier], attached.limits) as journal,
    ):
        # Not the path of the copy that was brought here: a person types this elsewhere.
        spec_path = Path(attached.spec_path.name)
        trials = Trials(attached.folder, journal)
        written = Recording(journal, trials, attached.spec_file, spec_path, impatient or asyncio.Event())
        async with heartbeat(_heartbeat_of(attached, journal)), attached.opener(inputs, None) as backends:
            yield delivery_context(inputs, attached.plan, written, backends)


def _heartbeat_of(attached: AttachedDelivery, journal: Journal) -> Callable[[], Awaitable[None]]:
    async def say() -> None:
        # First: the fleet on this machine must hear of it also while MLflow is away.
        if attached.patience and isinstance(attached.spec.fleet, LocalFleet):
            lend(attached.state.root, SystemClock().now() + attached.patience)
        await journal.beat()

    return say


async def require_fleet(attached: AttachedDelivery) -> None:
    """A fleet on this machine must be up already: one that a step starts would end with the step.

    Raises:
        Refused: none is.
    """
    if isinstance(attached.spec.fleet, LocalFleet) and await attach(attached.state.root) is None:
        raise Refused("no fleet runs here", hint="start it with `tidegate fleet up --detach`")


def keep_report(attached: AttachedDelivery) -> None:
    """Write the report and keep it with the delivery."""
    target = report_path(attached.state, attached.ledger.delivery)
    local = EventFile(attached.folder / "events.jsonl")
    # The file has more looks at each gate, where one process has written it from the beginning.
    try:
        source = local if local.path.exists() else LedgerEvents(attached.ledger.recorded())
    except TidegateError as error:
        note(f"there is no report: {error}")
        return
    leave_report(attached.spec, attached.state, (attached.ledger.delivery, source), target, attached.ledger.attach)
