"""Evidence for a file of gates from the Prometheus that the command line names."""

from __future__ import annotations

from pathlib import Path

from gates.adapters.prometheus import PrometheusSource
from gates.ports import EvidenceSource
from gates.sequential_test import AnalysisPlan
from tidegate.app.wiring.gates.model import GateSet
from tidegate.app.wiring.gates.queries import with_queries
from tidegate.core.access import endpoint_at


def evidence_in(url: str, access: Path | None, judged: GateSet, terms: AnalysisPlan) -> EvidenceSource:
    """What both arms did, as the Prometheus at `url` has it; `access` is the file that says who asks.

    Raises:
        UsageError: it is no address.
        SpecError: the file is wrong.
    """
    address = endpoint_at(url, access)
    return with_queries(PrometheusSource(address, sources=judged.sources), address, terms)
