"""What the events of a delivery carry in their `data`, one class per kind.

The ledger stores plain JSON; these give it types again. Unknown keys are let through, so that an
older tidegate still shows what a newer one recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, Field, field_validator

from gates.model import Outcome
from pipelines.identity.model import Proof
from pipelines.model import Ending, Resolved
from registry.model import InnerPath, ModelVersion


class PlannedStep(BaseModel):
    """One step of the plan, as `delivery/started` lists it."""

    id: str
    stage: str
    region: str | None = None
    weight: int | None = None
    wave: int | None = None
    expected_seconds: float = 0.0
    """When its gates answer as soon as they can."""
    approvals: tuple[str, ...] = ()
    """What people must have approved before it starts."""


class Opening(BaseModel):
    """`delivery/started`: what is to be delivered, and the plan."""

    model: str
    version: str
    champion: str | None = None
    spec: str = ""
    """The name in the spec's metadata."""
    steps: tuple[PlannedStep, ...] = ()
    regions: tuple[str, ...] = ()
    challenger_version: ModelVersion | None = None
    """`version`, with what proves its files; None in ledgers of a tidegate that kept only its number."""
    champion_version: ModelVersion | None = None
    spec_file: InnerPath | None = None
    """Where the spec lies below the delivery's kept files; None when it was not kept."""
    resolved: Resolved | None = None
    """What was settled; None in ledgers of a tidegate that settled nothing."""


class Move(BaseModel):
    """`traffic`: how a region shares out its users from now on, in percent."""

    region: str
    weight: int = 0
    mirror: int = 0


class Count(BaseModel):
    """`evidence`: how far a step is, where it counts something."""

    done: int | None = None
    total: int | None = None


class Said(BaseModel):
    """`verdict`: what a gate says, for now or for good."""

    gate: str
    outcome: Outcome
    reason: str = ""
    numbers: Mapping[str, float] = Field(default_factory=dict)
    beside: Mapping[str, float] = Field(default_factory=dict)
    region: str | None = None
    transcripts: Mapping[str, tuple[int, str]] = Field(default_factory=dict)
    """By trial: how many bytes of its transcript were written, and their SHA-256."""

    @field_validator("outcome", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        return Outcome[value.upper()] if isinstance(value, str) else value


class Waiting(BaseModel):
    """`waiting`: what holds a step back, which is one of the two."""

    approval: str | None = None
    """What somebody must approve, as `wave@2`."""
    frozen_until: datetime | None = None
    reason: str = ""
    """Of the freeze."""
    evidence: str | None = None
    """Digest of what there is to see, which answers must name; None where names are enough."""
    by: str = ""
    """Who may answer, in words."""


class Answer(BaseModel):
    """`approved` and `refused`, whose step is what was asked, and `requested` and `resumed` of a delivery."""

    by: str = ""
    """What they call themselves; it counts only where names are enough."""
    reason: str = ""
    proof: Proof | None = None


class Counted(BaseModel):
    """`allowed` and `ignored`: what the step that waited makes of answers."""

    approval: str
    by: tuple[str, ...] = ()
    """Who, each with how that was proven."""
    answer: str | None = None
    """The key of the answer that was ignored."""


class Failure(BaseModel):
    """`failed`: what a step that stops the delivery makes of it; both None in older ledgers."""

    ending: Ending | None = None
    exit_code: int | None = None


class Closing(BaseModel):
    """`delivery/closed`: how it ended."""

    outcome: str
    reason: str = ""
    exit_code: int | None = None
