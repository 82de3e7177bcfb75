"""Prometheus' query API: raw samples of one moment's view, and single numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from gates.analyses.burn_rate import BurnRateGate, filled
from gates.evidence.batch import ArmName, Batch, Events
from gates.evidence.conventions import BUCKET, BY_PROXY, HISTOGRAMS, POD, PROCESS_START, UP, RequestCounters
from gates.evidence.counters import Bucket
from gates.evidence.scrape import batch_of
from gates.evidence.selector import NAME, selector
from gates.evidence.series import ArmScrapes, RawSeries, ScrapeWindow, Targets
from gates.model import ArmKey, NoData
from tidegate.core.access.model import PrometheusEndpoint
from tidegate.core.adapters.prometheus import PrometheusClient
from tidegate.core.errors import OutsideError


class PrometheusApi(PrometheusClient):
    """Also gives raw samples."""

    def samples(
        self, names: Iterable[str], match: Mapping[str, str], since: datetime, until: datetime
    ) -> list[RawSeries]:
        """Every series of these names with these labels, with its raw samples in [since, until].

        Raises:
            OutsideError: when Prometheus does not answer, or refuses.
        """
        # One more millisecond: newer versions leave the range's left end out.
        span = math.ceil((until - since) / timedelta(milliseconds=1)) + 1
        selected = selector({NAME: "|".join(names)} | dict(match), regex=NAME)
        return [series_of(answer) for answer in self.query(f"{selected}[{span}ms]", until).result]


Address = str | PrometheusEndpoint
"""Of a Prometheus; with whatever says who asks where it wants to know."""


def api_of_region(url: Address | Mapping[str, Address], *, timeout_seconds: int) -> Callable[[str], PrometheusApi]:
    """Who is asked about a region: the one at `url`, or the region's own where `url` has one for each."""
    if isinstance(url, Address):
        everywhere = PrometheusApi(url, timeout_seconds=timeout_seconds)
        return lambda _region: everywhere
    return {region: PrometheusApi(each, timeout_seconds=timeout_seconds) for region, each in url.items()}.__getitem__


def series_of(answer: Mapping[str, Any]) -> RawSeries:
    """One entry of a range vector, as the API words it."""
    labels = dict(answer["metric"])
    return RawSeries(
        name=labels.pop(NAME, ""),
        labels=labels,
        values=tuple((float(at), float(value)) for at, value in answer.get("values", ())),
        histograms=tuple(
            (float(at), tuple(_bucket(entry) for entry in histogram.get("buckets", ())))
            for at, histogram in answer.get("histograms", ())
        ),
    )


def _bucket(entry: tuple[int, str, str, str]) -> Bucket:
    rule, left, right, count = entry
    return int(rule), float(left), float(right), float(count)


class PrometheusEvents:
    """An `EventSource`."""

    def __init__(self, url: Address | Mapping[str, Address], *, timeout_seconds: int = 5) -> None:
        """`url` is Prometheus' own address, or one for each region; nothing is asked yet."""
        self._api = api_of_region(url, timeout_seconds=timeout_seconds)

    def events(self, gate: BurnRateGate, arm: ArmKey, since: datetime, until: datetime) -> Events | NoData:
        """As `EventSource`; choose windows of three scrape intervals or more, or `rate` sees nothing."""
        if gate.errors_query is None or gate.total_query is None:
            return NoData(reason="the gate has no queries")
        window = until - since
        total, bad = (
            self._number(arm.region, filled(query, window=window, places=arm.model_dump()), until)
            for query in (gate.total_query, gate.errors_query)
        )
        if isinstance(total, NoData):
            return total
        if isinstance(bad, NoData):
            # A query with a wrong label gives nothing as well; taken for 0, it would never see an error.
            return NoData(reason=f"{bad.reason}; end it with `or vector(0)` if no errors are no series")
        factor = window / timedelta(seconds=1) if gate.counted_as == "rate" else 1.0
        counted = round(total * factor)
        return Events(total=counted, bad=min(round(bad * factor), counted))

    def _number(self, region: str, query: str, at: datetime) -> float | NoData:
        answer = self._api(region).query(query, at).result
        if not answer:
            return NoData(reason=f"Prometheus has nothing for {query}")
        value = _value(query, answer)
        if not math.isfinite(value) or value < 0:
            return NoData(reason=f"Prometheus answers {value:g} to {query}")
        return value


def _value(query: str, answer: list[Any]) -> float:
    if isinstance(answer[0], dict):
        if len(answer) > 1:
            raise OutsideError(f"{query} gives {len(answer)} series", hint="write sum() around it")
        if "value" not in answer[0]:
            raise OutsideError(f"{query} gives no single number", hint="it must be an instant vector or a scalar")
        return float(answer[0]["value"][1])
    # A scalar: its time and its value.
    return float(answer[1])


LOOKBACK = timedelta(minutes=2)
"""How far before a sample the one before it may lie: two of Prometheus' default scrape intervals."""


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
    ) -> None:
        """`url` is Prometheus' own address, or one for each region; nothing is asked yet.

        `settles_within` is the scrape timeout: a sample has the time at which its scrape began.
        `pod_label` tells the engines of an arm apart. Where what counts requests does so for one engine alone,
        `proxy_pod_label` tells for which; a gateway's pods are not those of an arm. `only` are labels that everything
        has to have: where deliveries share a Prometheus, another's version 7 is not ours.
        """
        self.settles_within = settles_within
        self._api = api_of_region(url, timeout_seconds=timeout_seconds)
        self._pod_label = pod_label
        self._proxy_pod_label = proxy_pod_label
        self._counting = counting
        self._only = dict(only or {})

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As `EvidenceSource`; choose windows of three scrape intervals or more.

        The arms are not scraped at the same moment: a window sees each of them up to an interval late.
        """
        start = since - LOOKBACK
        names = [*self._counting.names, *HISTOGRAMS.values(), *(name + BUCKET for name in HISTOGRAMS.values())]
        lives = [
            series
            for region in sorted({stable.region, canary.region})
            for series in self._api(region).samples([UP, PROCESS_START], self._only | {"region": region}, start, until)
        ]
        targets = Targets(
            [(series.labels, series.values) for series in lives if series.name == UP],
            [(series.labels, series.values) for series in lives if series.name == PROCESS_START],
            lookback_seconds=LOOKBACK.total_seconds(),
        )
        arms = [
            ArmScrapes(arm=arm, key=key, series=self._api(key.region).samples(names, self._labels(key), start, until))
            for arm, key in ((ArmName.STABLE, stable), (ArmName.CANARY, canary))
        ]
        window = ScrapeWindow(since=since.timestamp(), until=until.timestamp(), targets=targets)
        return batch_of(
            arms,
            window,
            pod_label=self._pod_label,
            proxy_pod_label=self._proxy_pod_label,
            counting=self._counting,
        )

    def _labels(self, key: ArmKey) -> dict[str, str]:
        return {**self._only, **key.model_dump(), "role": self._counting.roles.get(key.role, key.role)}
