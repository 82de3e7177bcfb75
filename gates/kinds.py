"""The one list of gate kinds: specs, planning, sequential tests and stages ask it instead of naming gates.

A new kind is a module in `gates.analyses` and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping

from gates.analyses.agreement import AgreementKind
from gates.analyses.base import AnyGateKind, MonitoredGate, StageKind, TestedGate
from gates.analyses.burn_rate import BurnRateKind
from gates.analyses.drift.gate import DriftKind
from gates.analyses.errors import ErrorsKind
from gates.analyses.judge import JudgeKind
from gates.analyses.latency import LatencyKind
from gates.analyses.quality import QualityKind
from gates.evidence.batch import Source

GATE_KINDS: dict[str, AnyGateKind] = {
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


def tested_kinds() -> dict[str, AnyGateKind]:
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
