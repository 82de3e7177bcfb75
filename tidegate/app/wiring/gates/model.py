"""What gates are asked, wherever that is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from gates.evidence.batch import Source
from gates.sequential_test import AnalysisPlan
from tidegate.core.metrics import MetricSource


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
