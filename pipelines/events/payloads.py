"""What the events of a delivery carry in their `data`: one class for each kind, for writing and for reading.

`DeliveryPayload` is the union of them, and `payload_of` reads an event as one.

The ledger stores plain JSON, in which only what was set stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Self, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gates.model import OutcomeName
from pipelines.model import Ending, Left, Plan
from pipelines.statements import Proof
from registry.model import Event, EventKind, InnerPath
from tidegate.core.errors import NotGenuine
from tidegate.core.text import failure_line


class Payload(BaseModel):
    """The data of one event."""

    kind: ClassVar[EventKind]

    @classmethod
    def of(cls, event: Event) -> Self:
        """What an event of this kind carries.

        Raises:
            NotGenuine: it carries something else.
        """
        try:
            return cls.model_validate(event.data)
        # A validator, or what it calls, may raise anything where somebody else wrote.
        except Exception as error:
            where: tuple[str, ...] = (event.step, event.kind)
            what = failure_line(error)
            if isinstance(error, ValidationError):
                first = error.errors(include_url=False, include_input=False)[0]
                where, what = (*where, *map(str, first["loc"])), first["msg"]
            raise NotGenuine(
                f"an event in this delivery's ledger cannot be read: {'.'.join(where)}: {what}",
                hint="use the tidegate that wrote it, or deliver the version again",
            ) from error

    def event(self, at: datetime, step: str, message: str = "") -> Event:
        """The event that carries it."""
        return Event(
            at=at, step=step, kind=self.kind, message=message, data=self.model_dump(mode="json", exclude_unset=True)
        )


class Opening(Payload):
    """`delivery/started`: what is to be delivered, and how."""

    kind = EventKind.STARTED

    plan: Plan
    """But for what its gates were forecast to need."""
    spec_file: InnerPath | None = None
    """Where the spec lies below the delivery's kept files; None when it was not kept."""

    @classmethod
    def of_plan(cls, plan: Plan, spec_file: str | None = None) -> Opening:
        """What a delivery by that plan says first."""
        steps = tuple(step.model_copy(update={"gates": ()}) for step in plan.steps)
        return cls(plan=plan.model_copy(update={"steps": steps}), spec_file=spec_file)


class StepStarted(Payload):
    """`started` of a step."""

    kind = EventKind.STARTED


class TrafficShift(Payload):
    """`traffic`: how a region shares out its users from now on, in percent."""

    kind = EventKind.TRAFFIC

    region: str
    weight: int = 0
    mirror: int = 0


class StepProgress(Payload):
    """`evidence`: how far a step is, where it counts something, and what else it found out."""

    model_config = ConfigDict(extra="allow")

    kind = EventKind.EVIDENCE

    done: int | None = None
    total: int | None = None


class VerdictPayload(Payload):
    """`verdict`: what a gate says, for now or for good."""

    kind = EventKind.VERDICT

    gate: str
    outcome: OutcomeName
    reason: str = ""
    numbers: Mapping[str, float] = Field(default_factory=dict)
    auxiliary: Mapping[str, float] = Field(default_factory=dict)
    """Measured as well, for displays."""
    region: str | None = None
    transcripts: Mapping[str, tuple[int, str]] = Field(default_factory=dict)
    """By trial: how many bytes of its transcript were written, and their SHA-256."""


class Waiting(Payload):
    """`waiting`: what holds a step back, which is one of the two."""

    kind = EventKind.WAITING

    approval: str | None = None
    """What somebody must approve, as `wave@2`."""
    frozen_until: datetime | None = None
    reason: str = ""
    """Of the freeze."""
    evidence: str | None = None
    """Digest of what there is to see, which answers must name; None where names are enough."""
    by: str = ""
    """Who may answer, in words."""


class PersonAnswer(Payload):
    """What a person says, of a step or of the delivery."""

    by: str = ""
    """What they call themselves; it counts only where names are enough."""
    reason: str = ""
    proof: Proof | None = None


class ApprovalGiven(PersonAnswer):
    """`approved`: what was asked may go on."""

    kind = EventKind.APPROVED


class ApprovalDenied(PersonAnswer):
    """`refused`: it may not, and the delivery goes back."""

    kind = EventKind.REFUSED


class DeliveryRequested(PersonAnswer):
    """`delivery/requested`: who asked for it."""

    kind = EventKind.REQUESTED


class DeliveryResumed(PersonAnswer):
    """`delivery/resumed`: who goes on with it."""

    kind = EventKind.RESUMED


class StopRequest(Payload):
    """`delivery/stop`: another process wants it to end."""

    kind = EventKind.STOP


class AnswersAllow(Payload):
    """`allowed`: the step that waited has answers enough."""

    kind = EventKind.ALLOWED
    approval: str = ""
    """What was waited for."""
    by: tuple[str, ...] = ()
    """Who, each with how that was proven."""


class AnswerIgnored(Payload):
    """`ignored`: an answer does not count."""

    kind = EventKind.IGNORED
    approval: str
    answer: str | None = None
    """Its key."""


class StepDone(Payload):
    """`done` of a step."""

    kind = EventKind.DONE


class StepUndone(Payload):
    """`undone`: a region no longer shows what the step did."""

    kind = EventKind.UNDONE


class StepFailure(Payload):
    """`failed`: what a step that stops the delivery makes of it; neither of a region that is not back."""

    kind = EventKind.FAILED

    ending: Ending | None = None
    exit_code: int | None = None


class LeftBehind(Payload):
    """`delivery/left`: the regions that are not back, and how the delivery ends otherwise."""

    kind = EventKind.LEFT

    left: tuple[Left, ...] = ()
    reason: str = ""


class Returned(Payload):
    """`delivery/returned`: one of them is back after all."""

    kind = EventKind.RETURNED

    region: str


class Closing(Payload):
    """`delivery/closed`: how it ended."""

    kind = EventKind.CLOSED

    outcome: str
    reason: str = ""
    exit_code: int | None = None


DeliveryPayload = (
    Opening
    | StepStarted
    | TrafficShift
    | StepProgress
    | VerdictPayload
    | Waiting
    | ApprovalGiven
    | ApprovalDenied
    | AnswersAllow
    | AnswerIgnored
    | DeliveryRequested
    | DeliveryResumed
    | StopRequest
    | StepDone
    | StepUndone
    | StepFailure
    | LeftBehind
    | Returned
    | Closing
)

# `started` carries one thing of a delivery and another of a step; all others are told apart by their kind.
_BY_KIND: Mapping[str, type[Payload]] = {each.kind: each for each in get_args(DeliveryPayload) if each is not Opening}


def payload_of(event: Event) -> DeliveryPayload | None:
    """What the event carries; None when its kind is one of a newer tidegate.

    Raises:
        NotGenuine: it carries something else than its kind says.
    """
    opening = (event.step, event.kind) == ("delivery", Opening.kind)
    found = Opening if opening else _BY_KIND.get(event.kind)
    return cast("DeliveryPayload", found.of(event)) if found else None
