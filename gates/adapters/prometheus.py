"""Evidence from Prometheus: counters of requests, vLLM's histograms for times.

Where there is a proxy of ours, it counts the requests: vLLM takes a client that hangs up for a success and has 4xx
nowhere but in `http_requests_total`. In a cluster that is what there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from gates.adapters.prometheus_api import api_of_region
from gates.evidence import Arm, Batch
from gates.model import ArmKey
from gates.scraped.batch import batch_of
from gates.scraped.conventions import (
    BUCKET,
    HISTOGRAMS,
    POD,
    PROCESS_START,
    UP,
)
from gates.scraped.counting import BY_PROXY, Counting
from gates.scraped.series import ArmScrapes, Window
from gates.scraped.targets import Targets

LOOKBACK = timedelta(minutes=2)
"""How far before a sample the one before it may lie: two of Prometheus' default scrape intervals."""

STALENESS = timedelta(minutes=5)
"""How far before the window `requests` and `latencies` look for a series' last sample; Prometheus' own."""


class PrometheusSource:
    """Reads raw counter samples and differences them itself."""

    def __init__(
        self,
        url: str | Mapping[str, str],
        *,
        timeout_seconds: int = 5,
        settles_within: timedelta = timedelta(seconds=10),
        pod_label: str = POD,
        proxy_pod_label: str = "",
        counting: Counting = BY_PROXY,
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
            for arm, key in ((Arm.STABLE, stable), (Arm.CANARY, canary))
        ]
        window = Window(since=since.timestamp(), until=until.timestamp(), targets=targets)
        return batch_of(
            arms,
            window,
            pod_label=self._pod_label,
            proxy_pod_label=self._proxy_pod_label,
            counting=self._counting,
        )

    def _labels(self, key: ArmKey) -> dict[str, str]:
        return {**self._only, **key.model_dump(), "role": self._counting.roles.get(key.role, key.role)}
