"""What the events of a delivery say: its state, folded from them, and what a later process has to know.

The fold is pure: the same events give the same state, live on a terminal or years later from the
ledger. What moves between two events, such as elapsed time, is asked for with the time at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum

from gates.model import GateOutcome, Verdict
from pipelines.events.payloads import (
    Closing,
    LeftBehind,
    Opening,
    Returned,
    StepFailure,
    StepProgress,
    TrafficShift,
    VerdictPayload,
    Waiting,
)
from pipelines.model import EXIT_CODES, Ending, Left, Plan, PlanStep, Result, expected_seconds
from registry.model import Event, EventKind, StepId
from tidegate.core.errors import NotGenuine, UsageError
from tidegate.core.model import Value
from tidegate.core.text import LONGEST, one_line

UNDOABLE = frozenset({"deploy", "canary", "promote"})
"""Stages that change a region, and are therefore rolled back with it."""


class StepStatus(StrEnum):
    """Status of a step."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """Also one that was at work when the delivery ended."""
    SKIPPED = "skipped"
    """The delivery ended before it began."""
    UNDONE = "undone"
    """Was done, and rolled back with its region."""


class StepState(Value):
    """One step and how it went: of the plan, or one that takes a region back."""

    id: str
    stage: str
    region: str | None = None
    weight: int | None = None
    wave: int = 0
    """Regions of one wave go at the same time; 0 for steps of the whole delivery."""
    expected_seconds: float = 0.0
    """When its gates answer as soon as they can."""
    state: StepStatus = StepStatus.WAITING
    held_since: datetime | None = None
    """When it was first held back before it began; None when nothing held it."""
    held_by: str = ""
    """What held it back last: an approval, such as `wave@2`, or `a freeze`."""
    started: datetime | None = None
    ended: datetime | None = None
    message: str = ""
    """What the step said last."""
    progress: tuple[int, int] | None = None
    """Done and total, where the step counts something."""

    @property
    def name(self) -> str:
        """Without its place: `canary 25%`."""
        return f"{self.stage} {self.weight}%" if self.weight is not None else self.stage

    @property
    def is_held(self) -> bool:
        """Whether it waits for people or for the end of a freeze: only then one that has not begun says something."""
        return self.state is StepStatus.WAITING and bool(self.message)

    @property
    def is_at_work(self) -> bool:
        """Whether it runs, or is held."""
        return self.state is StepStatus.RUNNING or self.is_held

    def seconds(self, now: datetime) -> float:
        """How long it has taken until `now`, or until it ended; 0 before it starts."""
        return ((self.ended or now) - self.started).total_seconds() if self.started else 0.0


class TrafficSplit(Value):
    """How a region's users were shared out from one moment on."""

    at: datetime
    weight: int
    """Percent of user traffic on the version being delivered; 100 once the region is promoted."""
    mirror: int = 0
    """Percent of user traffic copied to it."""


class RegionTraffic(Value):
    """One region's traffic, from the first change to the last."""

    name: str
    history: tuple[TrafficSplit, ...] = ()

    @property
    def weight(self) -> int:
        return self.history[-1].weight if self.history else 0

    @property
    def mirror(self) -> int:
        return self.history[-1].mirror if self.history else 0

    def moved(self, change: TrafficSplit) -> RegionTraffic:
        """The region after a change; a repeated one leaves no trace."""
        if (change.weight, change.mirror) == (self.weight, self.mirror):
            return self
        return self.model_copy(update={"history": (*self.history, change)})


class TimedVerdict(Value):
    """One verdict and when it was given."""

    at: datetime
    verdict: Verdict


class GateState(Value):
    """One gate in one step: everything it said."""

    name: str
    step: str
    region: str | None = None
    history: tuple[TimedVerdict, ...]
    """Oldest first; never empty."""

    @property
    def latest(self) -> Verdict:
        return self.history[-1].verdict


class DeliveryState(Value):
    """The state of a delivery after some of its events."""

    model: str = ""
    version: str = ""
    champion: str | None = None
    spec: str = ""
    """The delivery's name in its spec: what users ask for, and what its series in Prometheus carry as `service`."""
    steps: tuple[StepState, ...] = ()
    regions: tuple[RegionTraffic, ...] = ()
    seen: frozenset[str] = frozenset()
    """The regions of which somebody saw how their users are shared out; of the others no one knows."""
    gates: tuple[GateState, ...] = ()
    requester: str = ""
    """Who asked for it, with how that was proven; empty where nobody did."""
    allowed: tuple[str, ...] = ()
    """What people have approved, each with who and how that was proven, by the steps that waited for it."""
    left: tuple[Left, ...] = ()
    """The regions that are not back though they were asked."""
    started: datetime | None = None
    ended: datetime | None = None
    outcome: str | None = None
    """`delivered`, `rolled-back`, `inconclusive`, `interrupted` or `failed`; None while it runs."""
    reason: str = ""
    exit_code: int | None = None

    @property
    def deciding(self) -> GateState | None:
        """The gate that stopped the delivery: the worst latest verdict that is no pass, the last of equals."""
        if self.outcome not in ("rolled-back", "inconclusive"):
            return None
        stopping = [gate for gate in self.gates if gate.latest.outcome > GateOutcome.RUNNING]
        return max(reversed(stopping), key=lambda gate: gate.latest.outcome, default=None)

    def elapsed_seconds(self, now: datetime) -> float:
        """Seconds since the delivery started, until `now` or its end."""
        return ((self.ended or now) - self.started).total_seconds() if self.started else 0.0

    def apply(self, event: Event) -> DeliveryState:
        """The state after one more event."""
        return _after(self, event)

    def step(self, step_id: str) -> StepState | None:
        """The step with that id; None when there is none."""
        return next((step for step in self.steps if step.id == step_id), None)

    def with_step(self, event: Event, **changes: object) -> DeliveryState:
        """The state with the event's step changed, and its words; a step outside the plan, as an undo, is appended."""
        if event.step == "delivery":
            return self
        known = self.steps
        if self.step(event.step) is None:
            said = StepId.parsed(event.step)
            weight = int(said.weight) if said.weight else None
            known += (StepState(id=event.step, stage=said.stage, region=said.place or None, weight=weight),)
        changed = {"message": event.message, **changes}
        steps = tuple(step.model_copy(update=changed) if step.id == event.step else step for step in known)
        return self.model_copy(update={"steps": steps})

    def with_traffic(self, region: str, change: TrafficSplit) -> DeliveryState:
        """The state after a region's traffic changed."""
        new = () if any(each.name == region for each in self.regions) else (RegionTraffic(name=region),)
        moved = tuple(each.moved(change) if each.name == region else each for each in (*self.regions, *new))
        return self.model_copy(update={"regions": moved, "seen": self.seen | {region}})


def state_of(events: Iterable[Event]) -> DeliveryState:
    """The state of a delivery after these events, in their order."""
    delivery = DeliveryState()
    for event in events:
        delivery = delivery.apply(event)
    return delivery


def _after(delivery: DeliveryState, event: Event) -> DeliveryState:
    """The state after an event; one of a kind of a newer tidegate changes nothing."""
    match event.kind:
        case EventKind.STARTED if event.step == "delivery":
            after = _opened(event)
        case EventKind.REQUESTED if event.step == "delivery":
            after = delivery.model_copy(update={"requester": event.message})
        case EventKind.TRAFFIC:
            shift = TrafficShift.of(event)
            # After the promotion there is no canary, so the region itself says 0 %: everybody is on the new version.
            promoted = event.step.startswith("promote@")
            weight, mirror = (100, 0) if promoted else (shift.weight, shift.mirror)
            after = delivery.with_traffic(shift.region, TrafficSplit(at=event.at, weight=weight, mirror=mirror))
        case EventKind.VERDICT:
            after = _judged(delivery, event, VerdictPayload.of(event))
        case EventKind.LEFT:
            after = delivery.model_copy(update={"left": LeftBehind.of(event).left})
        case EventKind.RETURNED:
            back = Returned.of(event).region
            after = delivery.model_copy(update={"left": tuple(each for each in delivery.left if each.region != back)})
        case EventKind.CLOSED:
            after = _closed(delivery, event, Closing.of(event))
        case _:
            after = _step_after(delivery, event)
    return after


def _opened(event: Event) -> DeliveryState:
    plan = Opening.of(event).plan
    steps = (step.model_dump(exclude={"gates", "approvals"}) for step in plan.steps)
    return DeliveryState(
        model=plan.version.name,
        version=plan.on_trial,
        champion=plan.in_production,
        spec=plan.name,
        started=event.at,
        steps=tuple(StepState(id=step.id, **said) for step, said in zip(plan.steps, steps, strict=True)),
        regions=tuple(RegionTraffic(name=name) for name in plan.regions),
    )


def _step_after(delivery: DeliveryState, event: Event) -> DeliveryState:
    """The state after an event that tells of one step; most of what people say changes nothing by itself."""
    step = delivery.step(event.step)
    match event.kind:
        case EventKind.STARTED:
            after = delivery.with_step(event, state=StepStatus.RUNNING, started=event.at, ended=None)
        case EventKind.WAITING:
            since = (step.held_since if step else None) or event.at
            after = delivery.with_step(event, held_since=since, held_by=Waiting.of(event).approval or "a freeze")
        case EventKind.ALLOWED:
            # Regions that wait for one answer say it side by side.
            allowed = tuple(dict.fromkeys((*delivery.allowed, event.message)))
            after = delivery.with_step(event).model_copy(update={"allowed": allowed})
        case EventKind.EVIDENCE:
            count = StepProgress.of(event)
            counted = count.done is not None and count.total is not None
            after = delivery.with_step(event, progress=(count.done, count.total) if counted else None)
        case EventKind.DONE:
            after = _done(delivery.with_step(event, state=StepStatus.DONE, ended=event.at), event)
        case EventKind.FAILED:
            after = delivery.with_step(event, state=StepStatus.FAILED, ended=event.at)
        case EventKind.UNDONE:
            after = delivery.with_step(event, state=StepStatus.UNDONE, message=step.message if step else "")
        case _:
            after = delivery
    return after


def _judged(delivery: DeliveryState, event: Event, said: VerdictPayload) -> DeliveryState:
    of_gate = {name: getattr(said, name) for name in Verdict.model_fields}
    verdict = TimedVerdict(
        at=event.at, verdict=Verdict.model_validate({**of_gate, "reason": said.reason or event.message})
    )
    new = GateState(name=said.gate, step=event.step, region=said.region, history=(verdict,))
    key = (new.name, new.step, new.region)
    if all((gate.name, gate.step, gate.region) != key for gate in delivery.gates):
        return delivery.model_copy(update={"gates": (*delivery.gates, new)})
    gates = tuple(
        gate.model_copy(update={"history": (*gate.history, verdict)})
        if (gate.name, gate.step, gate.region) == key
        else gate
        for gate in delivery.gates
    )
    return delivery.model_copy(update={"gates": gates})


def _done(delivery: DeliveryState, event: Event) -> DeliveryState:
    """What a step that is done makes of its region's users, and an undo of the steps there that were done."""
    done = delivery.step(event.step)
    if done is None or done.region is None or done.stage not in ("promote", "undo"):
        return delivery
    weight = 100 if done.stage == "promote" else 0
    delivery = delivery.with_traffic(done.region, TrafficSplit(at=event.at, weight=weight))
    if done.stage == "promote":
        return delivery
    steps = (
        step.model_copy(update={"state": StepStatus.UNDONE})
        if step.region == done.region and step.stage in UNDOABLE and step.state is StepStatus.DONE
        else step
        for step in delivery.steps
    )
    return delivery.model_copy(update={"steps": tuple(steps)})


def _closed(delivery: DeliveryState, event: Event, closing: Closing) -> DeliveryState:
    over: Mapping[StepStatus, Mapping[str, object]] = {
        StepStatus.WAITING: {"state": StepStatus.SKIPPED},
        StepStatus.RUNNING: {"state": StepStatus.FAILED, "ended": event.at},
    }
    steps = tuple(step.model_copy(update=over.get(step.state, {})) for step in delivery.steps)
    ending = {"outcome": closing.outcome, "reason": closing.reason or event.message, "exit_code": closing.exit_code}
    return delivery.model_copy(update={"steps": steps, "ended": event.at, **ending})


def seconds_left(delivery: DeliveryState, now: datetime) -> float | None:
    """What the remaining steps should still take, when their gates answer as soon as they can.

    Waves follow each other; the regions of one go at the same time, so its slowest counts. None when
    no one knows: before the start, after the end, and once anything failed or is rolled back.
    """
    troubled = any(
        step.state in (StepStatus.FAILED, StepStatus.UNDONE) or step.stage == "undo" for step in delivery.steps
    )
    # What is being rolled back follows no plan.
    if not delivery.steps or delivery.outcome or troubled:
        return None
    ahead = (StepStatus.WAITING, StepStatus.RUNNING)
    return expected_seconds(
        (step.wave, step.region, max(step.expected_seconds - step.seconds(now), 0.0))
        for step in delivery.steps
        if step.state in ahead
    )


class Failed(Value):
    """A step that stopped the delivery, and what it makes of it."""

    step: str
    ending: Ending
    reason: str
    exit_code: int


def plan_of(events: Iterable[Event]) -> Plan:
    """The plan as it was when the delivery was opened; what its gates were forecast to need is left out.

    Raises:
        UsageError: the delivery was not opened to the end.
    """
    opening = _opening(events)
    if opening is None:
        raise UsageError("this delivery's ledger holds no plan", hint="deliver the version again")
    return opening.plan


def spec_file_of(events: Iterable[Event]) -> str | None:
    """Where the spec lies below the kept files of the delivery; None when it was not kept."""
    opening = _opening(events)
    return opening.spec_file if opening else None


def done_steps(events: Iterable[Event]) -> frozenset[str]:
    """The ids of steps that are done and have not been undone or begun again since."""
    done: set[str] = set()
    for event in events:
        if event.kind == "done":
            done.add(event.step)
        elif event.kind in ("started", "undone", "failed"):
            done.discard(event.step)
    return frozenset(done)


def asked_to_stop(events: Iterable[Event]) -> str | None:
    """Who asked from outside that this delivery end; None when nobody did."""
    return next((event.message for event in events if event.kind == "stop"), None)


def first_failure(events: Iterable[Event]) -> Failed | None:
    """The first step that failed and was not done after all when it was tried again."""
    failures: dict[str, Failed] = {}
    for event in events:
        if event.kind == "failed" and not event.step.startswith("undo@"):
            failures.setdefault(event.step, _failed(event))
        elif event.kind == "done":
            failures.pop(event.step, None)
    return next(iter(failures.values()), None)


def outcome_of(events: Iterable[Event], delivery: str) -> Result | None:
    """How the delivery ended; None while it is open.

    Raises:
        NotGenuine: in no way that a delivery ends.
    """
    said = [event for event in events if event.step == "delivery" and event.kind == "closed"]
    if not said:
        return None
    closing = Closing.of(said[-1])
    if closing.outcome not in list(Ending):
        raise NotGenuine(
            f"delivery {delivery} ended in no way that there is: {one_line(closing.outcome)[:LONGEST]!r}",
            hint="see who wrote it: `tidegate audit verify`",
        )
    ending = Ending(closing.outcome)
    code = EXIT_CODES[ending] if closing.exit_code is None else closing.exit_code
    return Result.model_validate(
        {"delivery": delivery, "ending": ending, "reason": closing.reason, "exit_code": code},
    )


def step_of(plan: Plan, wanted: str) -> PlanStep:
    """The step with that id.

    Raises:
        UsageError: there is none; names those of its stage, or all.
    """
    found = next((step for step in plan.steps if step.id == wanted), None)
    if found is None:
        stage = StepId.parsed(wanted).stage
        near = [step.id for step in plan.steps if step.stage == stage] or [step.id for step in plan.steps]
        raise UsageError(f"`{wanted}` is no step of this delivery", hint=f"one of: {', '.join(near)}")
    return found


def missing_before(plan: Plan, step: PlanStep, done: frozenset[str]) -> list[str]:
    """The ids of steps that must be done before `step` may start and are not: in its lane, and in all before."""
    return [each.id for each in before(plan, step) if each.id not in done]


def before(plan: Plan, step: PlanStep) -> Iterator[PlanStep]:
    """Every step after which `step` comes: regions of one wave do not wait for each other."""
    for each in plan.steps[: plan.steps.index(step)]:
        parallel = step.region is not None and each.region not in (None, step.region) and each.wave == step.wave
        if not parallel:
            yield each


def _opening(events: Iterable[Event]) -> Opening | None:
    found = (event for event in events if event.step == "delivery" and event.kind == Opening.kind)
    return next((Opening.of(event) for event in found), None)


def _failed(event: Event) -> Failed:
    failure = StepFailure.of(event)
    ending = failure.ending or Ending.FAILED
    code = EXIT_CODES[ending] if failure.exit_code is None else failure.exit_code
    return Failed(step=event.step, ending=ending, reason=event.message, exit_code=code)
