"""The one list of gate kinds, and what a delivery's spec says of them: margins, and the sample that they need.

Specs, planning, sequential tests and stages ask the list instead of naming gates. A new kind is a module in
`gates.analyses` and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import AfterValidator, Field, WithJsonSchema, create_model
from pydantic_core import PydanticKnownError

from gates.analyses.agreement import AgreementGate, AgreementKind
from gates.analyses.base import GateKind, MonitoredGate, StageKind, TestedGate
from gates.analyses.burn_rate import BurnRateGate, BurnRateKind
from gates.analyses.drift.gate import DriftKind
from gates.analyses.drift.spec import DriftGate
from gates.analyses.errors import ErrorsGate, ErrorsKind
from gates.analyses.judge import JudgeKind
from gates.analyses.latency import LatencyGate, LatencyKind
from gates.analyses.quality import QualityGate, QualityKind
from gates.evidence.batch import Source
from gates.judge.spec import JudgeGate
from tidegate.core.durations import Duration
from tidegate.core.model import SpecModel
from tidegate.core.quantities import Percent

GATE_KINDS: dict[str, GateKind[Any]] = {
    kind.name: kind
    for kind in (
        QualityKind(),
        LatencyKind(),
        ErrorsKind(),
        AgreementKind(),
        JudgeKind(),
        BurnRateKind(),
        DriftKind(),
    )
}
"""By name, in the order in which a sequential test lists its verdicts."""


def tested_kinds() -> dict[str, GateKind[Any]]:
    """Those that a sequential test can have; the others are judged once, by their stage."""
    return {name: kind for name, kind in GATE_KINDS.items() if isinstance(kind, TestedGate | MonitoredGate)}


def kinds_from_batches() -> tuple[str, ...]:
    """Those that batches of evidence can answer, without a delivery around them."""
    return tuple(name for name, kind in GATE_KINDS.items() if kind.from_batches)


def is_paired(gate: str) -> bool:
    """Whether it compares answers to the same prompts, unless told otherwise."""
    return GATE_KINDS[gate].usual_sources == ("probe",)


def kinds_of_stage(stage: StageKind, *, by_default: bool = False) -> tuple[str, ...]:
    """Those that a stage of a delivery can ask; `by_default` those that it has when it names none."""
    uses = {name: use for name, kind in GATE_KINDS.items() if (use := kind.use_in(stage))}
    return tuple(name for name, use in uses.items() if use.by_default or not by_default)


def stage_sources(stage: StageKind) -> Mapping[str, tuple[Source, ...]]:
    """Who counts in a stage for the kinds that have their own sources there."""
    uses = {name: use for name, kind in GATE_KINDS.items() if (use := kind.use_in(stage))}
    return {name: use.sources for name, use in uses.items() if use.sources}


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
