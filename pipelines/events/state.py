"""The state of a delivery, folded from its events. Every display reads this and nothing else.

The fold is pure: the same events give the same state, live on a terminal or years later from the
ledger. What moves between two events, such as elapsed time, is asked for with the time at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import singledispatch

from gates.model import GateOutcome, Verdict
from pipelines.events.payloads import (
    AnswersAllow,
    Closing,
    DeliveryRequested,
    GitChange,
    LeftBehind,
    Opening,
    Returned,
    StepDone,
    StepFailure,
    StepProgress,
    StepStarted,
    StepUndone,
    TrafficShift,
    VerdictPayload,
    Waiting,
    payload_of,
)
from pipelines.model import Left
from registry.model import Event, StepId
from tidegate.core.model import Value

UNDOABLE = frozenset({"deploy", "canary", "promote"})
"""Stages that change a region, and are therefore taken back with it."""


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
    """Was done, and taken back with its region."""


class StepState(Value):
    """One step of the plan and how it went."""

    id: str
    stage: str
    region: str | None = None
    weight: int | None = None
    wave: int | None = None
    """Regions of one wave go at the same time; None for steps of the whole delivery."""
    expected_seconds: float = 0.0
    approvals: tuple[str, ...] = ()
    """What people must have approved before it starts."""
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
        return _after(payload_of(event), self, event)

    def step(self, step_id: str) -> StepState | None:
        """The step with that id; None when there is none."""
        return next((step for step in self.steps if step.id == step_id), None)

    def with_step(self, event: Event, **changes: object) -> DeliveryState:
        """The state with the event's step changed; a step outside the plan, such as an undo, is appended."""
        if event.step == "delivery":
            return self
        known = self.steps if self.step(event.step) else (*self.steps, _unplanned(event.step))
        steps = tuple(step.model_copy(update=changes) if step.id == event.step else step for step in known)
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


def _unplanned(step_id: str) -> StepState:
    known = StepId.parsed(step_id)
    weight = int(known.weight) if known.weight else None
    return StepState(id=step_id, stage=known.stage, region=known.place or None, weight=weight)


@singledispatch
def _after(payload: object, delivery: DeliveryState, event: Event) -> DeliveryState:
    """The state after an event that carries this payload; most of what people say changes nothing by itself."""
    del payload, event
    return delivery


@_after.register
def _(opening: Opening, delivery: DeliveryState, event: Event) -> DeliveryState:
    del delivery
    return DeliveryState(
        model=opening.model,
        version=opening.version,
        champion=opening.champion,
        spec=opening.spec,
        started=event.at,
        steps=tuple(StepState(**step.model_dump()) for step in opening.steps),
        regions=tuple(RegionTraffic(name=name) for name in opening.regions),
    )


@_after.register
def _(_: DeliveryRequested, delivery: DeliveryState, event: Event) -> DeliveryState:
    return delivery.model_copy(update={"requester": event.message}) if event.step == "delivery" else delivery


@_after.register
def _(_: StepStarted, delivery: DeliveryState, event: Event) -> DeliveryState:
    return delivery.with_step(event, state=StepStatus.RUNNING, started=event.at, ended=None, message=event.message)


@_after.register
def _(waiting: Waiting, delivery: DeliveryState, event: Event) -> DeliveryState:
    step = delivery.step(event.step)
    since = (step.held_since if step else None) or event.at
    held_by = waiting.approval or "a freeze"
    return delivery.with_step(event, message=event.message, held_since=since, held_by=held_by)


@_after.register
def _(_: AnswersAllow, delivery: DeliveryState, event: Event) -> DeliveryState:
    told = delivery.with_step(event, message=event.message)
    # Regions that wait for one answer say it side by side.
    return told.model_copy(update={"allowed": tuple(dict.fromkeys((*delivery.allowed, event.message)))})


@_after.register
def _(move: TrafficShift, delivery: DeliveryState, event: Event) -> DeliveryState:
    # After the promotion there is no canary, so the region itself says 0 %: everybody is on the new version.
    promoted = event.step.startswith("promote@")
    change = TrafficSplit(at=event.at, weight=100 if promoted else move.weight, mirror=0 if promoted else move.mirror)
    return delivery.with_traffic(move.region, change)


@_after.register
def _(count: StepProgress, delivery: DeliveryState, event: Event) -> DeliveryState:
    progress = None if count.done is None or count.total is None else (count.done, count.total)
    return delivery.with_step(event, message=event.message, progress=progress)


@_after.register
def _(_: GitChange, delivery: DeliveryState, event: Event) -> DeliveryState:
    return delivery.with_step(event, message=event.message)


@_after.register
def _(said: VerdictPayload, delivery: DeliveryState, event: Event) -> DeliveryState:
    of_gate = {name: getattr(said, name) for name in Verdict.model_fields}
    verdict = Verdict.model_validate({**of_gate, "reason": said.reason or event.message})
    new = GateState(
        name=said.gate, step=event.step, region=said.region, history=(TimedVerdict(at=event.at, verdict=verdict),)
    )
    same = [gate for gate in delivery.gates if (gate.name, gate.step, gate.region) == (new.name, new.step, new.region)]
    if not same:
        return delivery.model_copy(update={"gates": (*delivery.gates, new)})
    grown = same[0].model_copy(update={"history": same[0].history + new.history})
    return delivery.model_copy(update={"gates": tuple(grown if gate is same[0] else gate for gate in delivery.gates)})


@_after.register
def _(_: StepDone, delivery: DeliveryState, event: Event) -> DeliveryState:
    delivery = delivery.with_step(event, state=StepStatus.DONE, ended=event.at, message=event.message)
    step = delivery.step(event.step)
    if step is None or step.region is None or step.stage not in ("promote", "undo"):
        return delivery
    delivery = delivery.with_traffic(
        step.region, TrafficSplit(at=event.at, weight=100 if step.stage == "promote" else 0)
    )
    return _taken_back(delivery, step.region) if step.stage == "undo" else delivery


def _taken_back(delivery: DeliveryState, region: str) -> DeliveryState:
    def state(step: StepState) -> StepStatus:
        undone = step.region == region and step.stage in UNDOABLE and step.state is StepStatus.DONE
        return StepStatus.UNDONE if undone else step.state

    return delivery.model_copy(
        update={"steps": tuple(step.model_copy(update={"state": state(step)}) for step in delivery.steps)}
    )


@_after.register
def _(_: StepFailure, delivery: DeliveryState, event: Event) -> DeliveryState:
    return delivery.with_step(event, state=StepStatus.FAILED, ended=event.at, message=event.message)


@_after.register
def _(_: StepUndone, delivery: DeliveryState, event: Event) -> DeliveryState:
    return delivery.with_step(event, state=StepStatus.UNDONE)


@_after.register
def _(behind: LeftBehind, delivery: DeliveryState, event: Event) -> DeliveryState:
    del event
    return delivery.model_copy(update={"left": behind.left})


@_after.register
def _(back: Returned, delivery: DeliveryState, event: Event) -> DeliveryState:
    del event
    return delivery.model_copy(update={"left": tuple(each for each in delivery.left if each.region != back.region)})


@_after.register
def _(closing: Closing, delivery: DeliveryState, event: Event) -> DeliveryState:
    over: Mapping[StepStatus, Mapping[str, object]] = {
        StepStatus.WAITING: {"state": StepStatus.SKIPPED},
        StepStatus.RUNNING: {"state": StepStatus.FAILED, "ended": event.at},
    }
    steps = tuple(step.model_copy(update=over.get(step.state, {})) for step in delivery.steps)
    ending = {"outcome": closing.outcome, "reason": closing.reason or event.message, "exit_code": closing.exit_code}
    return delivery.model_copy(update={"steps": steps, "ended": event.at, **ending})


SLOWEST_PACE, FASTEST_PACE = 5.0, 0.5
"""How far the steps so far may stretch or shrink what the remaining ones are expected to take."""


def seconds_left(delivery: DeliveryState, now: datetime) -> float | None:
    """What the remaining steps should still take, at the pace of those so far.

    Waves follow each other; the regions of one go at the same time, so its slowest counts. None when
    no one knows: before the start, after the end, and once anything failed or is taken back.
    """
    troubled = any(
        step.state in (StepStatus.FAILED, StepStatus.UNDONE) or step.stage == "undo" for step in delivery.steps
    )
    # What is being taken back follows no plan.
    if not delivery.steps or delivery.outcome or troubled:
        return None
    pace = _pace(delivery.steps, now)
    lanes: dict[int | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for step in delivery.steps:
        lanes[step.wave][step.region or ""] += _remaining(step, pace, now)
    return sum(_wave(regions) for regions in lanes.values())


def _wave(regions: dict[str, float]) -> float:
    """The slowest region, and what the wave does as a whole, such as its bake."""
    together = regions.get("", 0.0)
    return together + max((left for region, left in regions.items() if region), default=0.0)


def _pace(steps: Iterable[StepState], now: datetime) -> float:
    """How much longer than expected things take here: over what is finished or overdue."""
    telling = [
        step
        for step in steps
        if step.state is StepStatus.DONE or (step.started and step.seconds(now) > step.expected_seconds)
    ]
    expected = sum(step.expected_seconds for step in telling)
    if not expected:
        return 1.0
    return min(max(sum(step.seconds(now) for step in telling) / expected, FASTEST_PACE), SLOWEST_PACE)


def _remaining(step: StepState, pace: float, now: datetime) -> float:
    if step.state not in (StepStatus.WAITING, StepStatus.RUNNING):
        return 0.0
    return max(step.expected_seconds * pace - step.seconds(now), 0.0)
