"""What events of a delivery carry in their `data`: a class for each kind that carries anything, to write and to read.

The ledger stores plain JSON, in which only what was set stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Self

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
    """What a person says: `approved` or `refused` of a step, `requested` or `resumed` of the delivery."""

    by: str = ""
    """What they call themselves; it counts only where names are enough."""
    reason: str = ""
    proof: Proof | None = None


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
