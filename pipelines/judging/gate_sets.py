"""What a file of gates asks: one of kind Gates, or a delivery's spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gates.comparison import ComparisonPlan, comparison_plan
from gates.evidence.batch import USUAL_LOOK, Source
from gates.reports.gate_file import GateFile
from gates.sequential_test import AnalysisPlan, analysis_plan_of
from gates.spec import kinds_from_batches
from tidegate.core.errors import UsageError
from tidegate.core.metrics import MetricSource
from tidegate.core.spec import load_spec, stated_kind


@dataclass(frozen=True)
class GateSet:
    """What the file asks."""

    name: str
    terms: Callable[[Source], AnalysisPlan]
    """Given who counts where the file does not say: the terms of one trial."""
    planned: Callable[[timedelta], AnalysisPlan]
    """Given how long a stage may take: the terms of one trial in it, the burn rate of a delivery's SLO among them."""
    not_asked: tuple[str, ...]
    """Gates of the file that batches of evidence cannot answer, such as quality on a golden set."""
    look: timedelta
    """Between two batches."""
    sources: tuple[MetricSource, ...] = ()
    """Which series of a Prometheus are read, where they have other names than vLLM's."""
    service: str = ""
    """Whose gates they are, where the file says it: `metadata.name`."""

    @property
    def by_region(self) -> bool:
        """Whether series have a label for the region."""
        return not self.sources or any(source.region_label for source in self.sources)


def read_gates(path: Path, *, of_prometheus: bool = False) -> GateSet:
    """Read the file at `path`; `of_prometheus` when the evidence is there, which answers fewer gates.

    Raises:
        SpecError: with every problem, when it is neither of kind Gates nor of kind Delivery.
        UsageError: when it is a delivery without a gate that batches can answer.
    """
    if stated_kind(path) == "Delivery":
        return _gates_of_delivery(path, of_prometheus=of_prometheus)
    asked = load_spec(path, GateFile, also=GateFile.without_answers if of_prometheus else lambda _: ())
    return GateSet(
        name=asked.metadata.name or path.stem,
        terms=lambda source: asked.terms(counted_by=source),
        planned=lambda _: asked.terms(),
        not_asked=(),
        look=asked.gates.budget.poll_interval or USUAL_LOOK,
        sources=asked.metrics.sources,
        service=asked.metadata.name,
    )


def _gates_of_delivery(path: Path, *, of_prometheus: bool) -> GateSet:
    # All that a delivery's spec can say is twice what a file of gates can.
    from gates.analyses.burn_rate import BurnRateGate
    from gates.analyses.mean import assessing
    from pipelines.plan.gates import budget_shares, gates_within
    from pipelines.spec.delivery import Delivery

    spec = load_spec(path, Delivery)
    kinds = {gate: spec.gates.kind_of(gate) for gate in spec.gates.asked}
    answered = {gate: kind for gate, kind in kinds.items() if kind.from_batches}
    if of_prometheus:
        traced = assessing(spec.gates.asked)
        answered = {gate: kind for gate, kind in answered.items() if not kind.paired() and gate not in traced}
    asked = [*answered]
    # What one region's stage has of the delivery's budget, so that judging each of them elsewhere keeps it.
    shares = (share for name, share in budget_shares(spec).items() if name.startswith(("shadow@", "canary@")))
    share = min(shares, default=1.0)

    def sources(source: Source) -> dict[str, tuple[Source, ...]]:
        return {gate: (source,) for gate in asked if not kinds[gate].paired()}

    def terms(source: Source) -> AnalysisPlan:
        return analysis_plan_of(spec.gates, asked, sources=sources(source), share=share)

    def planned(within: timedelta) -> AnalysisPlan:
        burns = [*spec.gates.of(BurnRateGate)]
        return analysis_plan_of(gates_within(spec, within), asked + burns, sources=sources("users"), share=share)

    if not terms("users").gates:
        raise UsageError(f"{path} has no gate that evidence answers", hint=f"known: {', '.join(kinds_from_batches())}")
    return GateSet(
        name=spec.metadata.name,
        terms=terms,
        planned=planned,
        # No metric holds the answers that pairs are compared by.
        not_asked=tuple(gate for gate in kinds if gate not in asked),
        look=spec.look,
        sources=spec.metrics.sources,
        service=spec.metadata.name,
    )


def comparison_of(gates: Path | None, golden: Path) -> ComparisonPlan:
    """What two endpoints are compared by: the gates of a file, else the usual ones, in the name of the golden set.

    Raises:
        SpecError: the file is wrong.
    """
    if gates is None:
        return comparison_plan(golden.stem, None)
    if stated_kind(gates) == "Delivery":
        from pipelines.spec.delivery import Delivery

        spec = load_spec(gates, Delivery)
        return comparison_plan(spec.metadata.name, spec.gates)
    asked = load_spec(gates, GateFile)
    return comparison_plan(asked.metadata.name or gates.stem, asked.gates)
