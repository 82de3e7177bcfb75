"""One Prometheus series as it was scraped, and the window that a batch is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gates.counters import Counts, Sample, gains
from gates.histograms import Bucket
from gates.targets import Targets


@dataclass(frozen=True)
class RawSeries:
    """One series with its samples in order of time."""

    name: str
    labels: Mapping[str, str]
    values: tuple[Sample, ...] = ()
    """NaN where the target said so."""
    histograms: tuple[tuple[float, tuple[Bucket, ...]], ...] = ()
    """Of a native histogram: its buckets at each time."""

    def target(self, *own: str) -> frozenset[tuple[str, str]]:
        """Its labels but for `own`: the same for everything that one target tells of one arm."""
        return frozenset((name, value) for name, value in self.labels.items() if name not in own)


@dataclass(frozen=True)
class Window:
    """(since, until] in Unix seconds, and what is known of the targets in it."""

    since: float
    until: float
    targets: Targets

    def gains(self, labels: Mapping[str, str], times: tuple[float, ...], values: Counts) -> Gains:
        """What a series with these labels gained within the window, sample by sample."""
        origins = self.targets.origins(labels, times)
        inside = [index for index, at in enumerate(times) if self.since < at <= self.until]
        steps = gains(values, origins)
        undated = sum(int(values[index].sum()) for index in inside if origins[index].undated)
        return Gains(times=tuple(times[index] for index in inside), counts=steps[inside], undated=undated)


@dataclass(frozen=True)
class Gains:
    """What a series gained at each of its samples within a window."""

    times: tuple[float, ...]
    counts: Counts
    undated: int = 0
    """What it held when it was first seen, of an age that nobody knows; it is in no count."""
