"""One Prometheus series as it was scraped, and the window that a batch is about."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gates.evidence import Arm
from gates.model import ArmKey
from gates.scraped.counters import Counts, Origin, Sample, gains
from gates.scraped.histograms import Bucket
from gates.scraped.targets import Targets

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


@dataclass
class Window:
    """(since, until] in Unix seconds, what is known of the targets in it, and what could not be counted."""

    since: float
    until: float
    targets: Targets
    _reasons: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _undated: Counter[str] = field(default_factory=Counter)

    def gains(self, what: str, labels: Mapping[str, str], times: Sequence[float], values: Counts) -> Gains:
        """What a series with these labels gained within the window, sample by sample.

        What it held when it was first seen, of an age that nobody knows, is in no count but in `missing`.
        """
        origins = self.targets.origins(labels, times)
        inside = [index for index, at in enumerate(times) if self.since < at <= self.until]
        self._undated[what] += sum(int(values[index].sum()) for index in inside if origins[index] is Origin.UNDATED)
        return Gains(times=tuple(times[index] for index in inside), counts=gains(values, origins)[inside])

    def miss(self, what: str, reason: str) -> None:
        """Say why `what` is not known: `requests`, or a metric."""
        if reason not in self._reasons[what]:
            self._reasons[what].append(reason)

    @property
    def missing(self) -> dict[str, str]:
        """By what it is, for people."""
        return {what: "; ".join(reasons) for what, reasons in self._reasons.items()} | {
            f"{what} of unknown age": f"{count:,} were counted before it is known when and as what"
            for what, count in self._undated.items()
            if count
        }
