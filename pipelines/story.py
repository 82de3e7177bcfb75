"""A delivery's events, folded into what a person wants to know. Every display reads this and nothing else.

The fold is pure: the same events give the same story, live on a terminal or years later from the
ledger. What moves between two events, such as elapsed time, is asked for with the time at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from gates.model import Outcome, Verdict
from pipelines.payloads import Closing, Count, Move, Opening, Said
from pipelines.ports import Event
from tidegate.core.model import Value

UNDOABLE = frozenset({"deploy", "canary", "promote"})
"""Stages that change a region, and are therefore taken back with it."""


class StepState(StrEnum):
    """Where a step stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """Also one that was at work when the delivery ended."""
    SKIPPED = "skipped"
    """The delivery ended before it began."""
    UNDONE = "undone"
    """Was done, and taken back with its region."""


class Step(Value):
    """One line of the plan and how it went."""

    id: str
    stage: str
    region: str | None = None
    weight: int | None = None
    wave: int | None = None
    """Regions of one wave go at the same time; None for steps of the whole delivery."""
    expected_seconds: float = 0.0
    approvals: tuple[str, ...] = ()
    """What people must have approved before it starts."""
    state: StepState = StepState.WAITING
    started: datetime | None = None
    ended: datetime | None = None
    message: str = ""
    """What the step said last."""
    progress: tuple[int, int] | None = None
    """Done and total, where the step counts something."""

    def seconds(self, now: datetime) -> float:
        """How long it has taken until `now`, or until it ended; 0 before it starts."""
        return ((self.ended or now) - self.started).total_seconds() if self.started else 0.0


class Traffic(Value):
    """How a region's users were shared out from one moment on."""

    at: datetime
    weight: int
    """Percent of user traffic on the version being delivered; 100 once the region is promoted."""
    mirror: int = 0
    """Percent of user traffic copied to it."""


class Region(Value):
    """One region's traffic, from the first change to the last."""

    name: str
    history: tuple[Traffic, ...] = ()

    @property
    def weight(self) -> int:
        return self.history[-1].weight if self.history else 0

    @property
    def mirror(self) -> int:
        return self.history[-1].mirror if self.history else 0

    def moved(self, change: Traffic) -> Region:
        """The region after a change; a repeated one leaves no trace."""
        if (change.weight, change.mirror) == (self.weight, self.mirror):
            return self
        return self.model_copy(update={"history": (*self.history, change)})


class Judgement(Value):
    """One verdict and when it was given."""

    at: datetime
    verdict: Verdict


class Gate(Value):
    """One gate in one step: everything it said."""

    name: str
    step: str
    region: str | None = None
    history: tuple[Judgement, ...]
    """Oldest first; never empty."""

    @property
    def latest(self) -> Verdict:
        return self.history[-1].verdict


class Story(Value):
    """What is known of a delivery after some of its events."""

    model: str = ""
    version: str = ""
    champion: str | None = None
    spec: str = ""
    """The delivery's name in its spec: what users ask for, and what its series in Prometheus carry as `service`."""
    steps: tuple[Step, ...] = ()
    regions: tuple[Region, ...] = ()
    seen: frozenset[str] = frozenset()
    """The regions of which somebody saw how their users are shared out; of the others nobody knows."""
    gates: tuple[Gate, ...] = ()
    requester: str = ""
    """Who asked for it, with how that was proven; empty where nobody did."""
    allowed: tuple[str, ...] = ()
    """What people have approved, each with who and how that was proven, by the steps that waited for it."""
    started: datetime | None = None
    ended: datetime | None = None
    outcome: str | None = None
    """`delivered`, `rolled-back`, `inconclusive`, `interrupted` or `failed`; None while it runs."""
    reason: str = ""
    exit_code: int | None = None

    @property
    def deciding(self) -> Gate | None:
        """The gate that stopped the delivery: the worst latest verdict that is no pass, the last of equals."""
        if self.outcome not in ("rolled-back", "inconclusive"):
            return None
        stopping = [gate for gate in self.gates if gate.latest.outcome > Outcome.RUNNING]
        return max(reversed(stopping), key=lambda gate: gate.latest.outcome, default=None)

    def elapsed_seconds(self, now: datetime) -> float:
        """Seconds since the delivery started, until `now` or its end."""
        return ((self.ended or now) - self.started).total_seconds() if self.started else 0.0

    def with_event(self, event: Event) -> Story:
        """The story after one more event."""
        fold = _FOLDS.get(event.kind)
        return fold(self, event) if fold else self

    def step(self, step_id: str) -> Step | None:
        """The step with that id, when the story has one."""
        return next((step for step in self.steps if step.id == step_id), None)

    def with_step(self, event: Event, **changes: object) -> Story:
        """The story with the event's step changed; a step outside the plan, such as an undo, joins at its end."""
        if event.step == "delivery":
            return self
        known = self.steps if self.step(event.step) else (*self.steps, _unplanned(event.step))
        steps = tuple(step.model_copy(update=changes) if step.id == event.step else step for step in known)
        return self.model_copy(update={"steps": steps})

    def with_traffic(self, region: str, change: Traffic) -> Story:
        """The story after a region's traffic changed."""
        new = () if any(each.name == region for each in self.regions) else (Region(name=region),)
        moved = tuple(each.moved(change) if each.name == region else each for each in (*self.regions, *new))
        return self.model_copy(update={"regions": moved, "seen": self.seen | {region}})


def tell(events: Iterable[Event]) -> Story:
    """The story of these events, in their order."""
    story = Story()
    for event in events:
        story = story.with_event(event)
    return story


def _unplanned(step_id: str) -> Step:
    stage, _, place = step_id.partition("@")
    region, _, weight = place.partition("/")
    return Step(id=step_id, stage=stage, region=region or None, weight=int(weight) if weight else None)


def _started(story: Story, event: Event) -> Story:
    if event.step != "delivery":
        return story.with_step(event, state=StepState.RUNNING, started=event.at, ended=None, message=event.message)
    opening = Opening.model_validate(event.data)
    return Story(
        model=opening.model,
        version=opening.version,
        champion=opening.champion,
        spec=opening.spec,
        started=event.at,
        steps=tuple(Step(**step.model_dump()) for step in opening.steps),
        regions=tuple(Region(name=name) for name in opening.regions),
    )


def _traffic(story: Story, event: Event) -> Story:
    move = Move.model_validate(event.data)
    # After the promotion there is no canary, so the region itself says 0 %: everybody is on the new version.
    promoted = event.step.startswith("promote@")
    change = Traffic(at=event.at, weight=100 if promoted else move.weight, mirror=0 if promoted else move.mirror)
    return story.with_traffic(move.region, change)


def _requested(story: Story, event: Event) -> Story:
    return story.model_copy(update={"requester": event.message}) if event.step == "delivery" else story


def _allowed(story: Story, event: Event) -> Story:
    told = story.with_step(event, message=event.message)
    # Regions that wait for one answer say it side by side.
    return told.model_copy(update={"allowed": tuple(dict.fromkeys((*story.allowed, event.message)))})


def _waiting(story: Story, event: Event) -> Story:
    return story.with_step(event, message=event.message)


def _evidence(story: Story, event: Event) -> Story:
    count = Count.model_validate(event.data)
    progress = None if count.done is None or count.total is None else (count.done, count.total)
    return story.with_step(event, message=event.message, progress=progress)


def _verdict(story: Story, event: Event) -> Story:
    said = Said.model_validate(event.data)
    of_gate = said.model_dump(include=set(Verdict.model_fields))
    verdict = Verdict.model_validate({**of_gate, "reason": said.reason or event.message})
    new = Gate(name=said.gate, step=event.step, region=said.region, history=(Judgement(at=event.at, verdict=verdict),))
    same = [gate for gate in story.gates if (gate.name, gate.step, gate.region) == (new.name, new.step, new.region)]
    if not same:
        return story.model_copy(update={"gates": (*story.gates, new)})
    grown = same[0].model_copy(update={"history": same[0].history + new.history})
    return story.model_copy(update={"gates": tuple(grown if gate is same[0] else gate for gate in story.gates)})


def _done(story: Story, event: Event) -> Story:
    story = story.with_step(event, state=StepState.DONE, ended=event.at, message=event.message)
    step = story.step(event.step)
    if step is None or step.region is None or step.stage not in ("promote", "undo"):
        return story
    story = story.with_traffic(step.region, Traffic(at=event.at, weight=100 if step.stage == "promote" else 0))
    return _taken_back(story, step.region) if step.stage == "undo" else story


def _taken_back(story: Story, region: str) -> Story:
    def state(step: Step) -> StepState:
        undone = step.region == region and step.stage in UNDOABLE and step.state is StepState.DONE
        return StepState.UNDONE if undone else step.state

    return story.model_copy(
        update={"steps": tuple(step.model_copy(update={"state": state(step)}) for step in story.steps)}
    )


def _failed(story: Story, event: Event) -> Story:
    return story.with_step(event, state=StepState.FAILED, ended=event.at, message=event.message)


def _undone(story: Story, event: Event) -> Story:
    return story.with_step(event, state=StepState.UNDONE)


def _closed(story: Story, event: Event) -> Story:
    closing = Closing.model_validate(event.data)
    over: Mapping[StepState, Mapping[str, object]] = {
        StepState.WAITING: {"state": StepState.SKIPPED},
        StepState.RUNNING: {"state": StepState.FAILED, "ended": event.at},
    }
    steps = tuple(step.model_copy(update=over.get(step.state, {})) for step in story.steps)
    ending = {"outcome": closing.outcome, "reason": closing.reason or event.message, "exit_code": closing.exit_code}
    return story.model_copy(update={"steps": steps, "ended": event.at, **ending})


_FOLDS: Mapping[str, Callable[[Story, Event], Story]] = {
    "started": _started,
    "requested": _requested,
    "waiting": _waiting,
    "allowed": _allowed,
    "traffic": _traffic,
    "evidence": _evidence,
    "verdict": _verdict,
    "done": _done,
    "failed": _failed,
    "undone": _undone,
    "closed": _closed,
}
