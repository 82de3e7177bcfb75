"""Thresholds, which have to lie on the edge of a histogram's bucket: between two edges nobody counted."""

from __future__ import annotations

import math
from datetime import timedelta

from slo.metrics.model import Metric
from tidegate.core.model import Value
from tidegate.core.quantities import format_duration

_ROUNDING = 0.005
"""Of a person who writes 13.3 tokens a second for an edge at 0.075 s; edges are far wider apart."""


def edge_label(edge: float) -> str:
    """As vLLM's Prometheus client writes an edge in the label `le`: `1.0`, `0.25`."""
    return repr(float(edge))


class Threshold(Value):
    """What good events are told from bad ones by."""

    histogram: Metric
    """Of times, in seconds."""
    asked: float
    """Seconds that good events take at most, or how many of them fit into a second."""
    per_second: bool = False

    @property
    def edge(self) -> float | None:
        """The edge in seconds; None when none is there."""
        tolerance = _ROUNDING if self.per_second else 0
        return next(
            (e for e in self.histogram.edges if math.isclose(self._told(e), self.asked, rel_tol=tolerance)), None
        )

    @property
    def nearest(self) -> tuple[str, ...]:
        """The edge below and the edge above, as a person would ask for them."""
        told = sorted(self._told(edge) for edge in self.histogram.edges)
        below, above = [t for t in told if t < self.asked], [t for t in told if t > self.asked]
        return tuple(self.text(found) for found in (*below[-1:], *above[:1]))

    def text(self, told: float) -> str:
        """`told` as a person writes it."""
        return f"{told:.3g}" if self.per_second else format_duration(timedelta(seconds=told))

    def _told(self, edge: float) -> float:
        return 1 / edge if self.per_second else edge
