"""One Prometheus series as it was scraped, and the window that a batch is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gates.counters import Counts, Origin, Sample, gains
from gates.evidence import Arm
from gates.model import ArmKey
from gates.scraped_histograms import Bucket
from gates.targets import Targets

Target = frozenset[tuple[str, str]]
"""The labels that all series of one target have which tell of one arm."""

PodKey = tuple[Arm, str]


@dataclass(frozen=True)
class RawSeries:
    """One series with its samples in order of time."""

    name: str
    labels: Mapping[str, str]
    values: tuple[Sample, ...] = ()
    """NaN where the target said so."""
    histograms: tuple[tuple[float, tuple[Bucket, ...]], ...] = ()
    """Of a native histogram: its buckets at each time."""

    def target(self, *own: str) -> Target:
        """Its labels but for `own`, which tell the series of one target apart."""
        return frozenset((name, value) for name, value in self.labels.items() if name not in own)


@dataclass(frozen=True)
class ArmScrapes:
    """Everything that was scraped of one arm, from before the window to its end."""

    arm: Arm
    key: ArmKey
    series: Sequence[RawSeries]


@dataclass(frozen=True)
class Gains:
    """What a series gained at each of its samples within a window."""

    times: tuple[float, ...]
    counts: Counts
    undated: int
    """What it held when it was first seen, of an age that nobody knows; it is in no count."""


@dataclass
class Window:
    """(since, until] in Unix seconds, what is known of the targets in it, and what could not be counted."""

    since: float
    until: float
    targets: Targets
    missing: dict[str, str] = field(default_factory=dict)
    """By what it is, for people."""

    def gains(self, what: str, labels: Mapping[str, str], times: Sequence[float], values: Counts) -> Gains:
        """What a series with these labels gained within the window, sample by sample."""
        origins = self.targets.origins(labels, times)
        inside = [index for index, at in enumerate(times) if self.since < at <= self.until]
        undated = sum(int(values[index].sum()) for index in inside if origins[index] is Origin.UNDATED)
        if undated:
            self.miss(f"{what} of unknown age", f"{undated} were counted before it is known when and as what")
        times_inside = tuple(times[index] for index in inside)
        return Gains(times=times_inside, counts=gains(values, origins)[inside], undated=undated)

    def miss(self, what: str, reason: str) -> None:
        """The first reason stays: the others follow from it."""
        self.missing.setdefault(what, reason)
