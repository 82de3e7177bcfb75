"""What a Prometheus is asked for the evidence of an arm: which names, under which labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gates.evidence.batch import LatencyMetric
from gates.evidence.conventions import BUCKET, BY_VLLM, Histograms, RequestCounters, TimesHistogram
from gates.model import ArmKey
from tidegate.core.metrics import MetricSignal, MetricSource, RequestSeries, TimeSeries, source_of

TIMES = {
    LatencyMetric.TTFT: MetricSignal.TTFT,
    LatencyMetric.ITL: MetricSignal.ITL,
    LatencyMetric.E2E: MetricSignal.E2E,
}
NOBODY = RequestCounters(whose="nobody's", responses="", status="")
"""Of a Prometheus that counts no requests; gates that ask for them are refused before."""


@dataclass(frozen=True)
class SeriesRead:
    """One query for each arm."""

    names: tuple[str, ...]
    match: Callable[[ArmKey], Mapping[str, str]]
    like: Mapping[str, str]
    """Labels with regular expressions."""


@dataclass(frozen=True)
class EvidenceNames:
    """All that is read, and how it is understood."""

    reads: tuple[SeriesRead, ...]
    requests: RequestCounters
    times: Histograms
    pod: str
    """The label that tells the engines of an arm apart, unless a histogram has its own."""
    proxy_pod: str
    """The same, of what counts requests for one engine alone; empty for a gateway."""
    target: Callable[[str], Mapping[str, str]]
    """Given a region, the labels of its targets: one address may be a target in several regions."""


def own_names(counting: RequestCounters, *, only: Mapping[str, str], pod: str, proxy_pod: str) -> EvidenceNames:
    """VLLM's times and these counters, under the labels that our own scrape configuration sets."""

    def match(key: ArmKey) -> Mapping[str, str]:
        own = key.labels or {"role": counting.roles.get(key.role, key.role), "version": key.version}
        return {**only, "region": key.region, **own}

    read = SeriesRead(names=(*counting.names, *_series(BY_VLLM)), match=match, like={})
    return EvidenceNames(
        reads=(read,),
        requests=counting,
        times=BY_VLLM,
        pod=pod,
        proxy_pod=proxy_pod,
        target=lambda region: {**only, "region": region},
    )


def named_by(sources: Sequence[MetricSource], *, service: str) -> EvidenceNames:
    """As the sources say it, each signal from the first that has it."""
    counter = source_of(sources, MetricSignal.REQUESTS)
    series = counter.request_series if counter else None
    requests = _counters(series) if series else NOBODY
    times: dict[LatencyMetric, TimesHistogram] = {}
    reads: dict[int, list[str]] = {}
    if counter:
        reads.setdefault(sources.index(counter), []).extend(requests.names)
    for metric, signal in TIMES.items():
        source = source_of(sources, signal)
        histogram = source.time_series(signal) if source else None
        if source and histogram:
            times[metric] = _histogram(histogram, pod=source.pod_label)
            reads.setdefault(sources.index(source), []).extend(_series({metric: times[metric]}))
    places = {sources[place].region_label for place in reads}
    place_label = places.pop() if len(places) == 1 else ""
    return EvidenceNames(
        reads=tuple(_read(sources[place], names, service) for place, names in reads.items()),
        requests=requests,
        times=times,
        pod="",
        proxy_pod=counter.pod_label if counter else "",
        target=lambda region: {place_label: region} if place_label and region else {},
    )


def _read(source: MetricSource, names: Sequence[str], service: str) -> SeriesRead:
    def match(key: ArmKey) -> Mapping[str, str]:
        return source.labels_of(service=service, region=key.region, role=key.role, version=key.version, own=key.labels)

    return SeriesRead(names=tuple(names), match=match, like=source.matchers)


def _series(times: Histograms) -> tuple[str, ...]:
    """As a native and as a classic histogram has them."""
    return tuple(one.name + part for one in times.values() for part in ("", BUCKET))


def _counters(series: RequestSeries) -> RequestCounters:
    return RequestCounters(
        whose="the requests'",
        responses=series.metric,
        status=series.status,
        torn=series.cut or "",
        timeouts=series.timeouts or "",
        only=series.match,
        broken=series.broken,
    )


def _histogram(series: TimeSeries, *, pod: str) -> TimesHistogram:
    return TimesHistogram(series.metric, unit_seconds=series.seconds, only=series.match, pod=pod)
