"""The gates a delivery spec can ask for, with their margins and the sample they need."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import AfterValidator, Field, WithJsonSchema, create_model
from pydantic_core import PydanticKnownError

from gates.analyses.agreement import AgreementGate
from gates.analyses.base import StageKind
from gates.analyses.burn_rate import BurnRateGate
from gates.analyses.drift.spec import DriftGate
from gates.analyses.errors import ErrorsGate
from gates.analyses.latency import LatencyGate
from gates.analyses.quality import QualityGate
from gates.judge.spec import JudgeGate
from gates.kinds import GATE_KINDS, kinds_of_stage
from tidegate.core.durations import Duration
from tidegate.core.model import SpecModel
from tidegate.core.quantities import Percent

USUAL_LOOK = timedelta(seconds=10)
"""Between two batches of evidence, where nobody says how often anything is scraped."""


class Budget(SpecModel):
    """How often a whole delivery may be wrong: all gates, stages, regions and looks together."""

    former_keys: ClassVar[Mapping[str, str]] = {"look": "poll_interval"}

    rollback: Percent = Field(default=0.01, gt=0, le=0.2, validate_default=False)
    """The chance that a version that is no worse is taken back."""
    accept: Percent = Field(default=0.05, gt=0, le=0.5, validate_default=False)
    """The chance that a version that is worse by a margin passes that gate."""
    temper: bool = True
    """Weaken evidence by the spread seen between stable pods."""
    poll_interval: Duration | None = Field(default=None, gt=timedelta(0))
    """Between two batches of evidence; as often as the metrics' scrape interval allows when absent, 10 s at least."""


class BuiltInGates(SpecModel):
    """The gates of a delivery; stages name those that they wait for."""

    # Code can ask for these by name; `gates_section` adds every other kind that there is.

    budget: Budget = Budget()
    latency: LatencyGate | None = None
    errors: ErrorsGate | None = None
    quality: QualityGate | None = None
    agreement: AgreementGate | None = None
    judge: JudgeGate | None = None
    drift: DriftGate | None = None
    burn_rate: BurnRateGate | None = None


def gates_section() -> type[BuiltInGates]:
    """The class of `gates` in a delivery's spec: a key for each kind of gate."""
    more: dict[str, Any] = {
        name: (kind.spec | None, None) for name, kind in GATE_KINDS.items() if name not in BuiltInGates.model_fields
    }
    return create_model("Gates", __base__=BuiltInGates, __doc__=BuiltInGates.__doc__, **more)


if TYPE_CHECKING:
    Gates = BuiltInGates
else:
    Gates = gates_section()


def _names(names: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "string", **({"enum": list(names)} if len(names) > 1 else {"const": names[0]})}


def gate_of_stage(stage: StageKind) -> tuple[AfterValidator, WithJsonSchema]:
    """What makes a text the name of a gate that a stage of a delivery can ask."""

    def known(gate: str) -> str:
        names = kinds_of_stage(stage)
        if gate not in names:
            *first, last = (f"'{name}'" for name in names)
            raise PydanticKnownError("literal_error", {"expected": f"{', '.join(first)} or {last}" if first else last})
        return gate

    return AfterValidator(known), WithJsonSchema(_names(kinds_of_stage(stage)))
