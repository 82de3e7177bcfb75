"""A Prometheus as evidence: raw samples of one moment's view, differenced here, and single numbers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from gates.analyses.queries import AsksPrometheus, Window, filled
from gates.evidence import counters
from gates.evidence.batch import ArmName, Batch, Buckets
from gates.evidence.counters import NotCounts, Sample
from gates.evidence.names import (
    BUCKET_EDGE,
    INSTANCE,
    JOB,
    NAME,
    POD,
    PROCESS_START,
    UP,
    filled_places,
    named_by,
    of_this_machine,
    selector,
)
from gates.evidence.scrape import Gained, batch_of, by_target, edge_of, summed
from gates.evidence.series import ArmScrapes, RawSeries, ScrapeWindow, Targets, without_replicas
from gates.model import ArmKey, NoData
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.adapters.prometheus import InstantResult, PrometheusClient, SeriesAnswer
from tidegate.core.errors import OutsideError
from tidegate.core.metrics import MetricSource, literal

Address = str | PrometheusEndpoint
"""Of a Prometheus; with whatever says who asks where it wants to know."""

LOOKBACK = timedelta(minutes=2)
"""How far before a sample the one before it may lie: two of Prometheus' default scrape intervals."""

LONGEST_EXPRESSION = 4000
"""Characters: many proxies refuse an address of more than 8,000."""


class PrometheusSource:
    """An `EvidenceSource`, `TrialEvidence` and `QuerySource`.

    What a series of a gate's own query held when it was first seen is of an unknown age, and is not counted.
    """

    def __init__(
        self,
        url: Address | Mapping[str, Address],
        *,
        timeout_seconds: int = 5,
        settles_within: timedelta = timedelta(seconds=10),
        sources: Sequence[MetricSource] = (),
        gates: Mapping[str, AsksPrometheus] = {},
        service: str = "",
        known_as: Callable[[ArmKey], ArmKey] | None = None,
    ) -> None:
        """`url` is Prometheus' own address, or one for each region; nothing is asked yet.

        Args:
            url: of all regions, or by region.
            timeout_seconds: of one query.
            settles_within: the scrape timeout, because a sample has the time at which its scrape began.
            sources: which series there are, as `metrics.sources` of a spec; without any, those of this machine's fleet.
            gates: those that ask this Prometheus themselves, by name.
            service: the delivery's name, for sources with the labels of our own scrape configuration: where deliveries
                share a Prometheus, another's version 7 is not ours.
            known_as: the same arm with what its series say in place of the version.
        """
        self.settles_within, self._gates = settles_within, gates
        self._names = named_by(sources, service=service) if sources else of_this_machine()
        self._known_as = known_as or (lambda arm: arm)
        regions = {"": url} if isinstance(url, Address) else url
        self._clients = {
            region: PrometheusClient(each, timeout_seconds=timeout_seconds) for region, each in regions.items()
        }
        self._everywhere = isinstance(url, Address)

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As `EvidenceSource`; choose windows of three scrape intervals or more.

        The arms are not scraped at the same moment: a window sees each of them up to an interval late.
        """
        start, keys = since - LOOKBACK, {ArmName.STABLE: self._known_as(stable), ArmName.CANARY: self._known_as(canary)}
        arms = [ArmScrapes(arm=arm, key=key, series=self._series(key, start, until)) for arm, key in keys.items()]
        lives = self._lives(arms, start, until)
        # All at once: of replicas the same one is kept everywhere.
        once = set(map(id, without_replicas([*lives, *(each for arm in arms for each in arm.series)])))
        arms = [replace(arm, series=[each for each in arm.series if id(each) in once]) for arm in arms]
        targets = Targets(
            [(each.labels, each.values) for each in lives if each.name == UP and id(each) in once],
            [(each.labels, each.values) for each in lives if each.name == PROCESS_START and id(each) in once],
            lookback_seconds=LOOKBACK.total_seconds(),
        )
        window = ScrapeWindow(since=since.timestamp(), until=until.timestamp(), targets=targets)
        batch = batch_of(arms, window, self._names)
        for name, gate in self._gates.items():
            batch = gate.read(batch, name, self, (stable, canary), Window(since, until))
        return batch

    def sampled(self, arm: ArmKey, since: datetime, until: datetime) -> list[datetime]:
        """As `TrialEvidence`."""
        found = self._series(self._known_as(arm), since, until)
        times = {at for series in found for at, _ in series.values if since.timestamp() < at <= until.timestamp()}
        return [datetime.fromtimestamp(at, UTC) for at in sorted(times)]

    def selectors(self, arm: ArmKey) -> str:
        """As `TrialEvidence`."""
        arm = self._known_as(arm)
        return " or ".join(f"{read.names[0]}{selector(read.match(arm), like=read.like)}" for read in self._names.reads)

    def value(self, query: str, arm: ArmKey, window: Window) -> float | NoData:
        """As `QuerySource`."""
        places = self._known_as(arm).model_dump() | {"window": f"{_milliseconds(window.until - window.since)}ms"}
        asked = filled_places(query, places)
        value = number_in(asked, self._client(arm.region).query(asked, window.until))
        if value is None:
            return NoData(reason=f"Prometheus has nothing for {asked}")
        return value if math.isfinite(value) else NoData(reason=f"Prometheus answers {value:g} to {asked}")

    def counted(self, selector: str, arm: ArmKey, window: Window) -> dict[str, int]:
        """As `QuerySource`."""
        found: defaultdict[str, int] = defaultdict(int)
        span = _window(window)
        for query, series in self._selected(selector, arm, window):
            try:
                values = counters.counted([[value] for _, value in series.values])
            except NotCounts as problem:
                raise OutsideError(f"{problem} in {query}", hint="name a counter of whole events") from problem
            _, gained = span.gains("", series.labels, [at for at, _ in series.values], values)
            found[_pod(series.labels)] += int(gained.sum())
        return dict(found)

    def summed(self, selector: str, arm: ArmKey, window: Window) -> dict[str, float]:
        """As `QuerySource`; a value below the one before is of a process that began again at 0."""
        found: defaultdict[str, float] = defaultdict(float)
        for query, series in self._selected(selector, arm, window):
            values = np.asarray([value for _, value in series.values], dtype=np.float64)
            if not np.isfinite(values).all() or (values < 0).any():
                raise OutsideError(
                    f"{query} returns a value that is negative or no number", hint="name a counter: it only rises"
                )
            steps = np.diff(values, prepend=values[:1])
            steps = np.where(steps < 0, values, steps)
            late = [at > window.since.timestamp() for at, _ in series.values]
            found[_pod(series.labels)] += float(steps[late].sum())
        return dict(found)

    def distributed(self, selector: str, arm: ArmKey, window: Window) -> dict[str, Buckets]:
        """As `QuerySource`; on the edges that all of an arm's series share."""
        told: list[RawSeries] = []
        query, hint = "", "name the buckets of a classic histogram"
        for query, series in self._selected(selector, arm, window):
            if math.isnan(edge_of(series)):
                message = f"{query} returns a series without a bucket edge in its label {BUCKET_EDGE}"
                raise OutsideError(message, hint=hint)
            told.append(series)
        gained: list[Gained] = []
        for target, by_edge in by_target(told).items():
            try:
                times, edges, counts = counters.classic(by_edge)
            except NotCounts as problem:
                raise OutsideError(f"{problem} in {query}", hint=hint) from problem
            labels = dict(target)
            _, rows = _window(window).gains("", labels, times, counts)
            gained.append(((ArmName.CANARY, _pod(labels)), edges, rows.sum(axis=0).tolist()))
        found = {pod: buckets for (_, pod), buckets in summed(gained).items()}
        if gained and not found:
            raise OutsideError(f"the histograms of {query} share no bucket edge", hint="select series with the same")
        return found

    def _client(self, region: str) -> PrometheusClient:
        return self._clients["" if self._everywhere else region]

    def _samples(
        self, region: str, names: Iterable[str], match: Mapping[str, str], like: Mapping[str, str], *span: datetime
    ) -> list[RawSeries]:
        """Every series of these names with these labels, with its raw samples in [since, until]."""
        since, until = span
        # One more millisecond: newer versions leave the range's left end out.
        length = math.ceil((until - since) / timedelta(milliseconds=1)) + 1
        wanted = f"{selector(match, like={NAME: '|'.join(names), **like})}[{length}ms]"
        return [series_of(answer) for answer in self._client(region).query(wanted, until).series]

    def _series(self, key: ArmKey, start: datetime, until: datetime) -> list[RawSeries]:
        return [
            series
            for read in self._names.reads
            for series in self._samples(key.region, read.names, read.match(key), read.like, start, until)
        ]

    def _lives(self, arms: Sequence[ArmScrapes], start: datetime, until: datetime) -> list[RawSeries]:
        """Good scrapes and starts of the arms' jobs and addresses, whatever other labels these have."""
        lives: list[RawSeries] = []
        for region in sorted({arm.key.region for arm in arms}):
            there = [series.labels for arm in arms if arm.key.region == region for series in arm.series]
            if not there:
                continue
            like = {
                name: "|".join(sorted({literal(labels.get(name, "")) for labels in there})) for name in (INSTANCE, JOB)
            }
            if len(like[INSTANCE]) > LONGEST_EXPRESSION:
                del like[INSTANCE]
            lives += self._samples(region, [UP, PROCESS_START], self._names.target(region), like, start, until)
        return lives

    def _selected(self, selector: str, arm: ArmKey, window: Window) -> Iterator[tuple[str, RawSeries]]:
        """What a gate's own selector gives, each with the whole query."""
        # Behind a comment there is no range.
        gap = "\n" if "#" in selector else ""
        length = _milliseconds(window.until - window.since + LOOKBACK)
        query = f"{filled(selector, self._known_as(arm))}{gap}[{length}ms]"
        answered = self._client(arm.region).query(query, window.until).series
        for series in without_replicas([*map(series_of, answered)]):
            if series.native:
                hint = "name the counters of a classic histogram, or ask by a gate of kind query"
                raise OutsideError(f"{query} returns native histograms, which this gate does not read", hint=hint)
            if series.values:
                yield query, series


def series_of(answer: SeriesAnswer) -> RawSeries:
    """One entry of a range vector."""
    labels = dict(answer.metric)
    with suppress(KeyError, ValueError):
        # Prometheus 3 writes `1.0` what 2 left as `1`: one edge.
        labels[BUCKET_EDGE] = str(float(labels[BUCKET_EDGE]))
    return RawSeries(
        name=labels.pop(NAME, ""),
        labels=labels,
        values=_without_markers(answer.values),
        native=bool(answer.histograms),
    )


def _without_markers(values: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Without the NaN by which VictoriaMetrics before 1.107 says that a series ended; one that stays NaN is kept."""
    gone = [math.isnan(value) for _, value in values]
    if not any(gone):
        return values
    last = len(gone) - 1
    stays = [nan and ((at > 0 and gone[at - 1]) or (at < last and gone[at + 1])) for at, nan in enumerate(gone)]
    return tuple(sample for sample, nan, kept in zip(values, gone, stays, strict=True) if kept or not nan)


def number_in(query: str, answer: InstantResult) -> float | None:
    """The only number of an answer, if there is any.

    Raises:
        OutsideError: the query gives more, or something else.
    """
    if answer.scalar is not None:
        return answer.scalar[1]
    if len(answer.series) > 1:
        raise OutsideError(f"{query} gives {len(answer.series)} series", hint="write sum() around it")
    if not answer.series:
        return None
    sample = answer.series[0].value
    if sample is None:
        raise OutsideError(f"{query} gives no single number", hint="it must be an instant vector or a scalar")
    return sample[1]


def _window(window: Window) -> ScrapeWindow:
    """Of series of anybody's: all that is known of their targets is that what was counted before is not new."""
    targets = Targets([], [], lookback_seconds=math.inf)
    return ScrapeWindow(window.since.timestamp(), window.until.timestamp(), targets)


def _milliseconds(length: timedelta) -> int:
    return round(length / timedelta(milliseconds=1))


def _pod(labels: Mapping[str, str]) -> str:
    return labels.get(POD) or labels.get(INSTANCE, "")
