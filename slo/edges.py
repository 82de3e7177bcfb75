"""Thresholds and the edges of a histogram's buckets: which ones can be answered, and which are near to the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta

from slo.metrics.model import Metric
from tidegate.core.quantities import format_duration

_ROUNDING = 0.005
"""Of a person who writes 13.3 tokens a second for an edge at 0.075 s; edges are far wider apart."""


def label(edge: float) -> str:
    """As Python's Prometheus client, and so vLLM, writes an edge in the label `le`: `1.0`, `0.25`."""
    return repr(float(edge))


def edge_of_rate(histogram: Metric, per_second: float) -> float | None:
    """The edge, in seconds, at which events happen so many times a second; None when none is there."""
    return next((edge for edge in histogram.edges if math.isclose(1 / edge, per_second, rel_tol=_ROUNDING)), None)


def nearest_times(histogram: Metric, asked: timedelta) -> tuple[str, ...]:
    """The edge below `asked` and the one above; nothing when it is an edge itself."""
    seconds = asked.total_seconds()
    if seconds in histogram.edges:
        return ()
    return tuple(format_duration(timedelta(seconds=edge)) for edge in _around(sorted(histogram.edges), seconds))


def nearest_rates(histogram: Metric, asked: float) -> tuple[str, ...]:
    """As `nearest_times`, for edges told as times a second."""
    if edge_of_rate(histogram, asked) is not None:
        return ()
    return tuple(f"{rate:.3g}" for rate in _around(sorted(1 / edge for edge in histogram.edges), asked))


def _around(edges: Sequence[float], asked: float) -> tuple[float, ...]:
    below = [edge for edge in edges if edge < asked]
    above = [edge for edge in edges if edge > asked]
    return (*below[-1:], *above[:1])
