"""What a delivery's spec asks of evidence that is judged outside of a delivery."""

from __future__ import annotations

from datetime import timedelta

from gates.analyses.burn_rate import BurnRateGate
from gates.evidence.batch import Source
from gates.sequential_test import AnalysisPlan, analysis_plan_of
from gates.spec import is_paired
from pipelines.plan.gates import budget_shares, gates_within
from pipelines.spec.delivery import Delivery
from tidegate.app.wiring.gates.model import GateSet


def gates_of_delivery(spec: Delivery, *, of_prometheus: bool = False) -> GateSet:
    """Those that batches of evidence answer; `of_prometheus` as in `read_gates`."""
    kinds = {gate: spec.gates.kind_of(gate) for gate in spec.gates.asked}
    asked = [gate for gate, kind in kinds.items() if kind.from_batches and not (of_prometheus and is_paired(kind))]

    def sources(source: Source) -> dict[str, tuple[Source, ...]]:
        return {gate: (source,) for gate in asked if not is_paired(kinds[gate])}

    def terms(source: Source) -> AnalysisPlan:
        return analysis_plan_of(spec.gates, asked, sources=sources(source), share=_share(spec))

    def planned(within: timedelta) -> AnalysisPlan:
        burns = [*spec.gates.of(BurnRateGate)]
        return analysis_plan_of(gates_within(spec, within), asked + burns, sources=sources("users"), share=_share(spec))

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


def _share(spec: Delivery) -> float:
    """What one region's stage has of the delivery's budget, so that judging each of them elsewhere keeps it."""
    return min(
        (share for name, share in budget_shares(spec).items() if name.startswith(("shadow@", "canary@"))), default=1.0
    )
