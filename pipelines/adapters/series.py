"""Series of engines: how many requests each has answered, and whose they are where they name no version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gates.analyses.queries import QuerySource, Window
from gates.evidence.batch import Batch, Buckets
from gates.evidence.conventions import BY_ENGINE, POD, UP
from gates.evidence.selector import NAME, selector
from gates.model import ArmKey, NoData
from gates.ports import EvidenceSource
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.adapters.prometheus import PrometheusClient
from tidegate.core.threads import call_in_thread

TIMEOUT_SECONDS = 5


class ServedByPrometheus:
    """A `RequestCounter`: what engines themselves counted, copies and probes included."""

    def __init__(self, at: str | PrometheusEndpoint, labels: Callable[[str], Mapping[str, str]]) -> None:
        """`at` is Prometheus' own address, `labels` those of a version's series; nothing is asked yet."""
        self._client = PrometheusClient(at, timeout_seconds=TIMEOUT_SECONDS)
        self._labels = labels

    async def served(self, version: str) -> Mapping[str, float]:
        query = selector({NAME: BY_ENGINE.responses, **self._labels(version)})
        answer = await call_in_thread(self._client.query, query, datetime.now(UTC))
        counts: dict[str, float] = {}
        for series in answer.series:
            if series.value and BY_ENGINE.is_of_users(series.metric):
                pod = series.metric.get(POD, "")
                counts[pod] = counts.get(pod, 0.0) + series.value[1]
        return counts


async def is_scraped(at: PrometheusEndpoint, labels: Mapping[str, str]) -> bool:
    """Whether Prometheus scrapes anything with these labels.

    Raises:
        OutsideError: it does not answer, or refuses.
    """
    client = PrometheusClient(at, timeout_seconds=TIMEOUT_SECONDS)
    answer = await call_in_thread(client.query, selector({NAME: UP, **labels}), datetime.now(UTC))
    return bool(answer.series)


KnownAs = Callable[[ArmKey], ArmKey]
"""The same arm with what its series say in place of the version."""


@dataclass(frozen=True)
class BySeries:
    """An `EvidenceSource` and a `QuerySource` of engines of others: their series say a pod template hash, or a name,
    where a delivery knows versions.
    """

    evidence: EvidenceSource
    queries: QuerySource
    known_as: KnownAs

    @property
    def settles_within(self) -> timedelta:
        return self.evidence.settles_within

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        return self.evidence.batch(self.known_as(stable), self.known_as(canary), since, until)

    def counted(self, selector: str, arm: ArmKey, window: Window) -> Mapping[str, int]:
        return self.queries.counted(selector, self.known_as(arm), window)

    def summed(self, selector: str, arm: ArmKey, window: Window) -> Mapping[str, float]:
        return self.queries.summed(selector, self.known_as(arm), window)

    def distributed(self, selector: str, arm: ArmKey, window: Window) -> Mapping[str, Buckets]:
        return self.queries.distributed(selector, self.known_as(arm), window)

    def value(self, query: str, arm: ArmKey, window: Window) -> float | NoData:
        return self.queries.value(query, self.known_as(arm), window)
