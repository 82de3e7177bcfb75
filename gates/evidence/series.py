"""Prometheus' series as they were scraped, the processes that they are of, and the window that a batch is about.

A series that appears is new only if its process is, or if a scrape before did not have it. An engine
whose role changes gets new labels: its series appear too, with everything it counted in its old role.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gates.evidence.batch import ArmName
from gates.evidence.counters import Counts, Origin, Sample, gains
from gates.evidence.names import BUCKET_EDGE, INSTANCE, JOB, POD
from gates.model import ArmKey

Labels = Mapping[str, str]
Key = tuple[str, str]
"""Job and address: one address is one target of a job, whatever else its labels say."""

SAME_START_SECONDS = 1.0
"""A process' start is computed again by some clients and may tremble by this."""


class Targets:
    """The good scrapes of each target, and when its process started."""

    def __init__(
        self,
        up: Iterable[tuple[Labels, Sequence[Sample]]],
        started: Iterable[tuple[Labels, Sequence[Sample]]],
        *,
        lookback_seconds: float,
    ) -> None:
        """`up` and `started` are the series of those names; a sample says nothing beyond `lookback_seconds`."""
        self._lookback = lookback_seconds
        self._scrapes: dict[Key, list[tuple[float, frozenset[tuple[str, str]]]]] = defaultdict(list)
        for labels, samples in up:
            own = frozenset(labels.items())
            self._scrapes[_key(labels)].extend((at, own) for at, value in samples if value == 1)
        self._starts: dict[Key, list[Sample]] = defaultdict(list)
        for labels, samples in started:
            self._starts[_key(labels)].extend(samples)
        for scrapes in self._scrapes.values():
            scrapes.sort(key=lambda scrape: scrape[0])
        for starts in self._starts.values():
            starts.sort()

    def origins(self, labels: Labels, times: Sequence[float]) -> list[Origin]:
        """For each sample of a series with these labels, where its value comes from; `times` rise."""
        previous = [None, *times[:-1]]
        return [self._origin(_key(labels), before, at) for before, at in zip(previous, times, strict=True)]

    def _origin(self, key: Key, previous: float | None, at: float) -> Origin:
        if previous is not None and at - previous > self._lookback:
            previous = None
        scrapes = self._scrapes.get(key, [])
        index = bisect_left(scrapes, at, key=lambda scrape: scrape[0])
        # Samples that carry times of their own do not tell in which scrape they were seen.
        if index < len(scrapes) and scrapes[index][0] == at and index and at - scrapes[index - 1][0] <= self._lookback:
            last, labels = scrapes[index - 1]
            if labels != scrapes[index][1]:
                return Origin.UNDATED
            if previous is None or previous < last:
                return Origin.ZERO
        start = self._start(key, at)
        if previous is None:
            return Origin.ZERO if start is not None and at - start < self._lookback else Origin.UNDATED
        earlier = self._start(key, previous)
        restarted = start is not None and earlier is not None and start - earlier > SAME_START_SECONDS
        return Origin.ZERO if restarted else Origin.CONTINUES

    def _start(self, key: Key, at: float) -> float | None:
        starts = self._starts.get(key, [])
        index = bisect_right(starts, at, key=lambda sample: sample[0])
        return starts[index - 1][1] if index and at - starts[index - 1][0] <= self._lookback else None


def _key(labels: Labels) -> Key:
    return labels.get(JOB, ""), labels.get(INSTANCE, "")


Target = frozenset[tuple[str, str]]
"""The labels that all series of one target have which tell of one arm."""

PodKey = tuple[ArmName, str]


@dataclass(frozen=True)
class RawSeries:
    """One series with its samples in order of time."""

    name: str
    labels: Mapping[str, str]
    values: tuple[Sample, ...] = ()
    """NaN where the target said so."""
    native: bool = False
    """A native histogram, of which nothing is read."""

    def target(self, *own: str) -> Target:
        """Its labels but for `own`, which tell the series of one target apart."""
        return frozenset((name, value) for name, value in self.labels.items() if name not in own)


def joined(one: Sequence[Sample], other: Sequence[Sample]) -> tuple[Sample, ...]:
    """Both parts of a series that got another name for its edge: `1` became `1.0` with Prometheus 3."""
    return tuple(sorted(dict([*one, *other]).items())) if one else tuple(other)


def without_replicas(series: Sequence[RawSeries]) -> list[RawSeries]:
    """The series, those once that several replicas of a Prometheus scraped.

    A store that does not deduplicate has them under a label of the replica, whose name is anybody's choice. One scrape
    gives all series of a target the same time, and a second scraper comes at another time to the same counter.
    """
    kept = list(series)
    for label in sorted({name for each in series for name in each.labels} - {INSTANCE, POD, BUCKET_EDGE}):
        alike: dict[tuple[str, Target], list[RawSeries]] = defaultdict(list)
        for each in kept:
            alike[each.name, each.target(label)].append(each)
        told = {_copies(label, *pair) for group in alike.values() for pair in pairwise(group)}
        if True not in told or False in told:
            continue
        samples = Counter[str]()
        for each in kept:
            samples[each.labels.get(label, "")] += len(each.values)
        # One replica for all that it has: what belongs together of a target is of the same scrapes.
        order = [value for value, _ in sorted(samples.items(), key=lambda item: (-item[1], item[0]))]
        chosen: dict[tuple[str, Target], list[RawSeries]] = defaultdict(list)
        for each in sorted(kept, key=lambda one: order.index(one.labels.get(label, ""))):
            before = chosen[each.name, each.target(label)]
            if not any(one.labels != each.labels and _overlap(dict(each.values), dict(one.values)) for one in before):
                before.append(each)
        kept = [each for group in chosen.values() for each in group]
    return kept


def _copies(label: str, one: RawSeries, other: RawSeries) -> bool | None:
    """Whether two series that differ in this label alone are of one counter; None when nothing tells."""
    first, second = dict(one.values), dict(other.values)
    # What both arms' selectors find is one series that was read twice.
    if one.labels == other.labels or not _overlap(first, second) or len({*first.values(), *second.values()}) == 1:
        return None
    is_named_so = "replica" in label.lower()
    if common := first.keys() & second.keys():
        return is_named_so and all(first[at] == second[at] for at in common)
    if not (is_named_so or one.labels.keys() & {INSTANCE, POD}):
        return False
    falls = max(_falls(first), _falls(second))
    # Scrapes that overlap may read in another order than they began.
    return _falls(first | second) <= falls + (len(first) + len(second)) // 10


def _overlap(one: Mapping[float, float], other: Mapping[float, float]) -> bool:
    return bool(one) and bool(other) and max(min(one), min(other)) <= min(max(one), max(other))


def _falls(values: Mapping[float, float]) -> int:
    ordered = [values[at] for at in sorted(values)]
    return sum(later < earlier for earlier, later in pairwise(ordered))


@dataclass(frozen=True)
class ArmScrapes:
    """Everything that was scraped of one arm, from before the window to its end."""

    arm: ArmName
    key: ArmKey
    series: Sequence[RawSeries]


@dataclass
class ScrapeWindow:
    """(since, until] in Unix seconds, what is known of the targets in it, and what could not be counted."""

    since: float
    until: float
    targets: Targets
    _reasons: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _undated: Counter[str] = field(default_factory=Counter)

    def gains(
        self, what: str, labels: Mapping[str, str], times: Sequence[float], values: Counts
    ) -> tuple[list[float], Counts]:
        """What a series with these labels gained within the window: the times of its samples, and a row for each.

        What it held when it was first seen, of an age that is unknown, is in no count but in `missing`.
        """
        origins = self.targets.origins(labels, times)
        inside = [index for index, at in enumerate(times) if self.since < at <= self.until]
        self._undated[what] += sum(int(values[index].sum()) for index in inside if origins[index] is Origin.UNDATED)
        return [times[index] for index in inside], gains(values, origins)[inside]

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
