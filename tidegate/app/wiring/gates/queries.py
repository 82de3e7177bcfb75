"""Gates on a team's Prometheus, asked where no fleet brings the Prometheus."""

from __future__ import annotations

from gates.adapters.prometheus import Address
from gates.adapters.prometheus_queries import PrometheusQueries
from gates.analyses.queries.reading import WithQueries, asking_prometheus
from gates.ports import EvidenceSource
from gates.sequential_test import AnalysisPlan


def with_queries(source: EvidenceSource, address: Address, plan: AnalysisPlan) -> EvidenceSource:
    """The source, and what the plan's gates ask the Prometheus at `address` besides; nothing is asked yet."""
    asking = asking_prometheus(plan.settings)
    return WithQueries(source, PrometheusQueries(address), asking) if asking else source
