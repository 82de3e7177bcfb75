"""What a comparison asks, fixed before the first answer: its gates, with shares of one error budget."""

from __future__ import annotations

from gates.analyses.errors import ErrorsGate
from gates.analyses.latency import LatencyGate
from gates.analyses.quality import QualityGate
from gates.evidence.batch import Source
from gates.judge.spec import JudgeGate
from gates.sequential_test import AnalysisPlan, analysis_plan_of
from gates.spec import Gates, GatesByName
from tidegate.core.model import SpecModel, Value

PROBE: tuple[Source, ...] = ("probe",)


class ComparisonPlan(Value):
    """The gates of one comparison."""

    name: str
    quality: QualityGate
    pairs: AnalysisPlan
    """Of the gates on pairs, with their part of the budget."""
    judge: JudgeGate | None = None
    """Who is asked for the scores of the gate `judge`."""
    not_asked: tuple[str, ...] = ()
    """Gates that pairs of answers cannot answer."""
    rollback: float
    """The chance that this comparison fails a version that is no worse, over all gates and looks."""

    @property
    def gates(self) -> tuple[str, ...]:
        """In the order of their verdicts."""
        return (QualityGate.name, *self.pairs.gates)

    @property
    def rollback_each(self) -> float:
        """Each gate's share."""
        return self.rollback / len(self.gates)


UNLESS_SAID = Gates(latency=LatencyGate(), errors=ErrorsGate(max_increase=0.05))
"""Gates besides quality where no file names any. Of a few hundred prompts no more than 5 points can be told."""


def comparison_plan(name: str, said: GatesByName | None) -> ComparisonPlan:
    """The plan for the section `gates` of a delivery or of a file of kind Gates; None asks the usual gates.

    A golden set always asks quality, with default settings where the section has none.
    """
    gates = said or UNLESS_SAID
    judge = gates.only(JudgeGate)
    answerable = {
        gate
        for gate in gates.asked
        # A file of kind Gates has a judge's scores from elsewhere: nobody is named who gives some here.
        if gates.kind_of(gate).from_pairs and (judge or not gates.kind_of(gate).judged)
    }
    asked = [gate for gate in gates.asked if gate in answerable]
    share = len(asked) / (1 + len(asked))
    sources = dict.fromkeys(asked, PROBE)
    # A plan without gates spends nothing, but needs a chance.
    pairs = analysis_plan_of(gates, asked, sources=sources, share=share or 1.0)
    return ComparisonPlan(
        name=name,
        quality=gates.only(QualityGate) or QualityGate(),
        pairs=pairs,
        judge=judge,
        not_asked=tuple(gate for gate, each in gates.asked.items() if not (gate in answerable or _is_quality(each))),
        rollback=gates.budget.rollback,
    )


def _is_quality(settings: SpecModel) -> bool:
    return isinstance(settings, QualityGate)
