"""Evidence from Prometheus: Envoy's counters for requests, vLLM's histograms for times.

Envoy, not vLLM, counts the requests: vLLM takes a client that hangs up for a success and has 4xx
nowhere but in `http_requests_total`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from gates.adapters.prometheus_api import PrometheusApi
from gates.conventions import (
    BUCKET,
    BUCKET_EDGE,
    HISTOGRAMS,
    POD,
    PROCESS_START,
    RESPONSE_CODE,
    RESPONSES,
    TIMEOUTS,
    TORN,
    UP,
)
from gates.counters import gained
from gates.distribution import Distribution
from gates.evidence import Arm, Batch
from gates.model import ArmKey, Counts, NoData
from gates.scraped import batch_of
from gates.series import ArmScrapes, RawSeries, Window
from gates.spec import LatencyMetric
from gates.targets import Targets

LOOKBACK = timedelta(minutes=2)
"""How far before a sample the one before it may lie: two of Prometheus' default scrape intervals."""

STALENESS = timedelta(minutes=5)
"""How far before the window `requests` and `latencies` look for a series' last sample; Prometheus' own."""


class PrometheusSource:
    """Reads raw counter samples and differences them itself."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: int = 5,
        settles_within: timedelta = timedelta(seconds=10),
        pod_label: str = POD,
        proxy_pod_label: str = "",
    ) -> None:
        """`url` is Prometheus' own address; nothing is asked yet.

        `settles_within` is the scrape timeout: a sample has the time at which its scrape began.
        `pod_label` tells the engines of an arm apart. Where each engine has a proxy of its own,
        `proxy_pod_label` does so for its counts; a gateway's pods are not those of an arm.
        """
        self.url = url
        self._api = PrometheusApi(url, timeout_seconds=timeout_seconds)
        self.settles_within = settles_within
        self._pod_label = pod_label
        self._proxy_pod_label = proxy_pod_label

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As `EvidenceSource`; choose windows of three scrape intervals or more.

        The arms are not scraped at the same moment: a window sees each of them up to an interval late.
        """
        start = since - LOOKBACK
        names = [RESPONSES, TORN, TIMEOUTS, *HISTOGRAMS.values(), *(name + BUCKET for name in HISTOGRAMS.values())]
        lives = [
            series
            for region in sorted({stable.region, canary.region})
            for series in self._api.samples([UP, PROCESS_START], {"region": region}, start, until)
        ]
        targets = Targets(
            [(series.labels, series.values) for series in lives if series.name == UP],
            [(series.labels, series.values) for series in lives if series.name == PROCESS_START],
            lookback_seconds=LOOKBACK.total_seconds(),
        )
        arms = [
            ArmScrapes(arm=arm, key=key, series=self._api.samples(names, key.model_dump(), start, until))
            for arm, key in ((Arm.STABLE, stable), (Arm.CANARY, canary))
        ]
        window = Window(since=since.timestamp(), until=until.timestamp(), targets=targets)
        return batch_of(arms, window, pod_label=self._pod_label, proxy_pod_label=self._proxy_pod_label)

    def requests(self, arm: ArmKey, since: datetime, until: datetime) -> Counts | NoData:
        """As `MetricSource`, from Envoy; streams cut after their headers are counted as far as Envoy tells."""
        by_code: dict[int, float] = defaultdict(float)
        for series, count in self._gains(RESPONSES, arm, since, until):
            by_code[int(series.labels[RESPONSE_CODE])] += count
        if not by_code:
            return NoData(reason=f"Prometheus has no {RESPONSES} of {arm}")
        # Envoy counts each request once, under the status of its headers; what broke later is in TORN and TIMEOUTS.
        total = sum(by_code.values())
        refused = sum(count for code, count in by_code.items() if 400 <= code < 500)
        failed = sum(count for code, count in by_code.items() if code >= 500)
        for counter, code in ((TORN, 503), (TIMEOUTS, 504)):
            # Those that broke before their headers are among the 503s or 504s already.
            lost = sum(count for _, count in self._gains(counter, arm, since, until))
            failed += max(0.0, lost - by_code.get(code, 0.0))
        return Counts(total=round(total), failed=round(min(failed, total - refused)), refused=round(refused))

    def latencies(self, metric: LatencyMetric, arm: ArmKey, since: datetime, until: datetime) -> Distribution | NoData:
        """As `MetricSource`, from the engine's histogram."""
        name = HISTOGRAMS[metric] + BUCKET
        cumulated: dict[float, float] = defaultdict(float)
        for series, count in self._gains(name, arm, since, until):
            cumulated[float(series.labels[BUCKET_EDGE])] += count
        if not cumulated:
            return NoData(reason=f"Prometheus has no {name} of {arm}")
        # Prometheus cumulates: each bucket holds those below it too.
        edges = sorted(cumulated)
        lower = [0.0, *(cumulated[edge] for edge in edges)]
        counts = [cumulated[edge] - below for edge, below in zip(edges, lower, strict=False)]
        return Distribution.from_buckets(edges, counts)

    def _gains(self, metric: str, arm: ArmKey, since: datetime, until: datetime) -> Iterator[tuple[RawSeries, float]]:
        for series in self._api.samples([metric], arm.model_dump(), since - STALENESS, until):
            yield series, gained(series.values, since.timestamp())
