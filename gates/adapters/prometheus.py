"""Prometheus' query API: raw samples of one moment's view, and single numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gates.evidence.batch import ArmName, Batch
from gates.evidence.conventions import BUCKET_EDGE, BY_PROXY, INSTANCE, JOB, POD, PROCESS_START, UP, RequestCounters
from gates.evidence.counters import Sample
from gates.evidence.names import EvidenceNames, named_by, own_names
from gates.evidence.scrape import batch_of
from gates.evidence.selector import NAME, selector
from gates.evidence.series import ArmScrapes, RawSeries, ScrapeWindow, Targets, without_replicas
from gates.model import ArmKey
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.adapters.prometheus import InstantResult, PrometheusClient, SeriesAnswer
from tidegate.core.errors import OutsideError
from tidegate.core.metrics import MetricSource, literal


class PrometheusApi(PrometheusClient):
    """Also gives raw samples."""

    def samples(
        self,
        names: Iterable[str],
        match: Mapping[str, str],
        since: datetime,
        until: datetime,
        *,
        like: Mapping[str, str] | None = None,
    ) -> list[RawSeries]:
        """Every series of these names with these labels, with its raw samples in [since, until].

        Values in `like` are regular expressions.

        Raises:
            OutsideError: when Prometheus does not answer, or refuses.
        """
        # One more millisecond: newer versions leave the range's left end out.
        span = math.ceil((until - since) / timedelta(milliseconds=1)) + 1
        wanted = selector(match, like={NAME: "|".join(names), **(like or {})})
        return [series_of(answer) for answer in self.query(f"{wanted}[{span}ms]", until).series]


def _without_markers(values: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Without the NaN by which VictoriaMetrics before 1.107 says that a series ended; one that stays NaN is kept."""
    gone = [math.isnan(value) for _, value in values]
    if not any(gone):
        return values
    last = len(gone) - 1
    stays = [nan and ((at > 0 and gone[at - 1]) or (at < last and gone[at + 1])) for at, nan in enumerate(gone)]
    return tuple(sample for sample, nan, kept in zip(values, gone, stays, strict=True) if kept or not nan)


Address = str | PrometheusEndpoint
"""Of a Prometheus; with whatever says who asks where it wants to know."""


def api_of_region(url: Address | Mapping[str, Address], *, timeout_seconds: int) -> Callable[[str], PrometheusApi]:
    """Who is asked about a region: the one at `url`, or the region's own where `url` has one for each."""
    if isinstance(url, Address):
        everywhere = PrometheusApi(url, timeout_seconds=timeout_seconds)
        return lambda _region: everywhere
    return {region: PrometheusApi(each, timeout_seconds=timeout_seconds) for region, each in url.items()}.__getitem__


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
        histograms=tuple((at, one.buckets) for at, one in answer.histograms),
    )


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


LOOKBACK = timedelta(minutes=2)
"""How far before a sample the one before it may lie: two of Prometheus' default scrape intervals."""

LONGEST_EXPRESSION = 4000
"""Characters: many proxies refuse an address of more than 8,000."""


class PrometheusSource:
    """Reads raw counter samples and differences them itself."""

    def __init__(
        self,
        url: Address | Mapping[str, Address],
        *,
        timeout_seconds: int = 5,
        settles_within: timedelta = timedelta(seconds=10),
        pod_label: str = POD,
        proxy_pod_label: str = "",
        counting: RequestCounters = BY_PROXY,
        only: Mapping[str, str] | None = None,
        sources: Sequence[MetricSource] = (),
        service: str = "",
    ) -> None:
        """`url` is Prometheus' own address, or one for each region; nothing is asked yet.

        `settles_within` is the scrape timeout: a sample has the time at which its scrape began.
        `pod_label` tells the engines of an arm apart. Where what counts requests does so for one engine alone,
        `proxy_pod_label` tells for which; a gateway's pods are not those of an arm. `only` are labels that everything
        has to have: where deliveries share a Prometheus, another's version 7 is not ours.

        `sources` say instead which series there are, as `metrics.sources` of a spec; `service` is the delivery's
        name, for sources with the labels of our own scrape configuration.
        """
        self.settles_within = settles_within
        self._api = api_of_region(url, timeout_seconds=timeout_seconds)
        self._names = (
            named_by(sources, service=service)
            if sources
            else own_names(counting, only=only or {}, pod=pod_label, proxy_pod=proxy_pod_label)
        )

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As `EvidenceSource`; choose windows of three scrape intervals or more.

        The arms are not scraped at the same moment: a window sees each of them up to an interval late.
        """
        start, names = since - LOOKBACK, self._names
        arms = [
            ArmScrapes(arm=arm, key=key, series=self._series(names, key, start, until))
            for arm, key in ((ArmName.STABLE, stable), (ArmName.CANARY, canary))
        ]
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
        return batch_of(
            arms,
            window,
            pod_label=names.pod,
            proxy_pod_label=names.proxy_pod,
            counting=names.requests,
            histograms=names.times,
        )

    def sampled(self, arm: ArmKey, since: datetime, until: datetime) -> list[datetime]:
        """As `TrialEvidence`."""
        found = self._series(self._names, arm, since, until)
        times = {at for series in found for at in series.totals if since.timestamp() < at <= until.timestamp()}
        return [datetime.fromtimestamp(at, UTC) for at in sorted(times)]

    def selectors(self, arm: ArmKey) -> str:
        """As `TrialEvidence`."""
        return " or ".join(f"{read.names[0]}{selector(read.match(arm), like=read.like)}" for read in self._names.reads)

    def _series(self, names: EvidenceNames, key: ArmKey, start: datetime, until: datetime) -> list[RawSeries]:
        return [
            series
            for read in names.reads
            for series in self._api(key.region).samples(read.names, read.match(key), start, until, like=read.like)
        ]

    def _lives(self, arms: Sequence[ArmScrapes], start: datetime, until: datetime) -> list[RawSeries]:
        """Good scrapes and starts of the arms' jobs and addresses, whatever other labels these have."""
        lives: list[RawSeries] = []
        for region in sorted({arm.key.region for arm in arms}):
            there = [series.labels for arm in arms if arm.key.region == region for series in arm.series]
            if not there:
                continue
            like = {name: _any_of(labels.get(name, "") for labels in there) for name in (INSTANCE, JOB)}
            if len(like[INSTANCE]) > LONGEST_EXPRESSION:
                del like[INSTANCE]
            match = self._names.target(region)
            lives += self._api(region).samples([UP, PROCESS_START], match, start, until, like=like)
        return lives


def _any_of(values: Iterable[str]) -> str:
    """A regular expression that fits these texts alone."""
    return "|".join(sorted({literal(value) for value in values}))
