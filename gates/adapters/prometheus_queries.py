"""What gates on a team's Prometheus ask of it: gains of counters and histograms, pod by pod, and single numbers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from gates.adapters.prometheus import LOOKBACK, Address, PrometheusSource, api_of_region, number_in, series_of
from gates.analyses.queries import AsksPrometheus, QuerySource, Window, WithQueries, asking_prometheus, filled
from gates.evidence import counters
from gates.evidence.batch import Buckets
from gates.evidence.conventions import BUCKET_EDGE, INSTANCE, POD
from gates.evidence.counters import Counts, NotCounts, Origin, Sample
from gates.evidence.selector import filled_places
from gates.evidence.series import RawSeries, joined, without_replicas
from gates.model import ArmKey, NoData
from gates.sequential_test import AnalysisPlan
from gates.trials import TrialEvidence
from tidegate.core.errors import OutsideError
from tidegate.core.metrics import MetricSource


class QueriedTrial(WithQueries):
    """A `TrialEvidence` whose gates ask queries too."""

    def __init__(self, source: PrometheusSource, queries: QuerySource, gates: Mapping[str, AsksPrometheus]) -> None:
        """As `WithQueries`."""
        super().__init__(source, queries, gates)
        self.sampled, self.selectors = source.sampled, source.selectors


def evidence_at(address: Address, sources: Sequence[MetricSource], terms: AnalysisPlan) -> TrialEvidence:
    """What both arms did, as a Prometheus has it, with what the gates of `terms` ask it besides; asks nothing yet."""
    source, asking = PrometheusSource(address, sources=sources), asking_prometheus(terms.settings)
    return QueriedTrial(source, PrometheusQueries(address), asking) if asking else source


class PrometheusQueries:
    """A `QuerySource`: reads raw samples and differences them itself.

    What a series held when it was first seen is of an unknown age, and is not counted.
    """

    def __init__(self, url: Address | Mapping[str, Address], *, timeout_seconds: int = 5) -> None:
        """`url` is Prometheus' own address, or one for each region; nothing is asked yet."""
        self._api = api_of_region(url, timeout_seconds=timeout_seconds)

    def counted(self, selector: str, arm: ArmKey, window: Window) -> dict[str, int]:
        """As `QuerySource`."""
        found: Counter[str] = Counter()
        for query, series in self._series(selector, arm, window):
            values = _whole(query, series.values)
            found[_pod(series)] += int(counters.gains(values, _origins(series.values))[_late(series, window)].sum())
        return dict(found)

    def summed(self, selector: str, arm: ArmKey, window: Window) -> dict[str, float]:
        """As `QuerySource`; a value below the one before is of a process that began again at 0."""
        found: defaultdict[str, float] = defaultdict(float)
        for query, series in self._series(selector, arm, window):
            values = np.asarray([value for _, value in series.values], dtype=np.float64)
            if not np.isfinite(values).all() or (values < 0).any():
                raise OutsideError(
                    f"{query} returns a value that is negative or no number", hint="name a counter: it only rises"
                )
            steps = np.diff(values, prepend=values[:1])
            steps = np.where(steps < 0, values, steps)
            found[_pod(series)] += float(steps[_late(series, window)].sum())
        return dict(found)

    def distributed(self, selector: str, arm: ArmKey, window: Window) -> dict[str, Buckets]:
        """As `QuerySource`; on the edges that all of an arm's series share."""
        by_target: defaultdict[frozenset[tuple[str, str]], dict[float, RawSeries]] = defaultdict(dict)
        query = ""
        for query, series in self._series(selector, arm, window):
            by_edge, edge = by_target[series.target(BUCKET_EDGE)], _edge(query, series)
            earlier = by_edge[edge].values if edge in by_edge else ()
            by_edge[edge] = replace(series, values=joined(earlier, series.values))
        gained = [(_pod(next(iter(each.values()))), *_gained(query, each, window)) for each in by_target.values()]
        common = counters.common_edges(edges for _, edges, _ in gained)
        if gained and not common:
            raise OutsideError(f"the histograms of {query} share no bucket edge", hint="select series with the same")
        found: dict[str, Buckets] = {}
        for pod, edges, counts in gained:
            part = counters.buckets(edges, counts, common)
            before = found[pod].counts if pod in found else (0,) * len(part.counts)
            both = tuple(a + b for a, b in zip(before, part.counts, strict=True))
            found[pod] = part.model_copy(update={"counts": both})
        return found

    def value(self, query: str, arm: ArmKey, window: Window) -> float | NoData:
        """As `QuerySource`."""
        places = arm.model_dump() | {"window": f"{_milliseconds(window.until - window.since)}ms"}
        asked = filled_places(query, places)
        value = number_in(asked, self._api(arm.region).query(asked, window.until))
        if value is None:
            return NoData(reason=f"Prometheus has nothing for {asked}")
        return value if math.isfinite(value) else NoData(reason=f"Prometheus answers {value:g} to {asked}")

    def _series(self, selector: str, arm: ArmKey, window: Window) -> Iterator[tuple[str, RawSeries]]:
        # Behind a comment there is no range.
        gap = "\n" if "#" in selector else ""
        query = f"{filled(selector, arm)}{gap}[{_milliseconds(window.until - window.since + LOOKBACK)}ms]"
        for series in without_replicas([*map(series_of, self._api(arm.region).query(query, window.until).series)]):
            if series.histograms:
                hint = "name the counters of a classic histogram, or ask by a gate of kind query"
                raise OutsideError(f"{query} returns native histograms, which this gate does not read", hint=hint)
            if series.values:
                yield query, series


def _milliseconds(length: timedelta) -> int:
    return round(length / timedelta(milliseconds=1))


def _pod(series: RawSeries) -> str:
    return series.labels.get(POD) or series.labels.get(INSTANCE, "")


def _late(series: RawSeries, window: Window) -> list[bool]:
    return [at > window.since.timestamp() for at, _ in series.values]


def _origins(samples: Sequence[Sample]) -> list[Origin]:
    return [Origin.UNDATED, *[Origin.CONTINUES] * (len(samples) - 1)]


def _whole(query: str, samples: Sequence[Sample]) -> Counts:
    """The values of a counter, one a row.

    Raises:
        OutsideError: it counts no whole events.
    """
    try:
        return counters.counted([[value] for _, value in samples])
    except NotCounts as problem:
        raise OutsideError(f"{problem} in {query}", hint="name a counter of whole events") from problem


def _edge(query: str, series: RawSeries) -> float:
    try:
        return float(series.labels[BUCKET_EDGE])
    except (KeyError, ValueError) as problem:
        hint = "name the buckets of a classic histogram"
        raise OutsideError(
            f"{query} returns a series without a bucket edge in its label {BUCKET_EDGE}", hint=hint
        ) from problem


def _gained(query: str, by_edge: Mapping[float, RawSeries], window: Window) -> tuple[tuple[float, ...], Sequence[int]]:
    """The edges of one histogram, and what each of its bins gained."""
    try:
        histogram = counters.classic({edge: each.values for edge, each in by_edge.items()})
    except NotCounts as problem:
        raise OutsideError(f"{problem} in {query}", hint="name the buckets of a classic histogram") from problem
    late = [at > window.since.timestamp() for at in histogram.times]
    samples = [(at, 0.0) for at in histogram.times]
    return histogram.edges, counters.gains(histogram.counts, _origins(samples))[late].sum(axis=0).tolist()
