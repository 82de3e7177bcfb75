"""What gates and SLOs ask a region's Prometheus for, and how often it should scrape: for the doctor. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TypeVar

from gates.analyses.errors import ErrorsGate
from gates.analyses.latency import LatencyGate
from gates.evidence.conventions import BY_ENGINE, HISTOGRAMS, PROCESS_START, UP
from gates.evidence.selector import NAME, selector
from pipelines.spec.delivery import Delivery
from rollouts.doctor.queries import EvidenceQuery, ScrapeInterval
from slo.catalogue import slo_of
from slo.model import WINDOW_PLACE, EventSli
from slo.spec import CountedBy
from tidegate.core.metrics import MetricSignal, MetricSource, source_of

Kind = TypeVar("Kind", LatencyGate, ErrorsGate)
WINDOW = "5m"
"""Of every question: as far back as Prometheus itself looks for a sample."""


def asked_of_prometheus(spec: Delivery, region: str) -> tuple[EvidenceQuery, ...]:
    """One question for each count that a gate or an SLO rests on, of all engines of a region together."""
    return (*_gates(spec, region), *_slos(spec))


def scraping_of(spec: Delivery, region: str) -> ScrapeInterval:
    """How often the region's engines should be scraped, and the query that tells how often they are.

    It measures from the first to the last sample of each, so that an engine that came a minute ago counts too.
    """
    up = selector({NAME: UP, "service": spec.metadata.name, "region": region})
    times = f"timestamp({up})[{WINDOW}:1s]"
    query = f"max((max_over_time({times}) - min_over_time({times})) / changes({times}))"
    return ScrapeInterval(query=query, interval=spec.scrape_interval, look=spec.look)


def _gates(spec: Delivery, region: str) -> Iterator[EvidenceQuery]:
    """Counts of the stable arm, which is there at any time; gates ask for the canary's by the same names."""
    used = {gate for stage in (spec.shadow, spec.canary) if stage for gate in stage.gates}
    if spec.sources:
        yield from _of_sources(spec, region, used)
        return
    stable = {"service": spec.metadata.name, "region": region, "role": "stable"}
    for name in (UP, PROCESS_START):
        yield EvidenceQuery(asked_by="every gate", query=f"count({selector({NAME: name, **stable})})")
    for gate, latency in _used(spec, LatencyGate, used):
        times = f"{HISTOGRAMS[latency.metric]}_count"
        yield EvidenceQuery(asked_by=f"gate {gate}", query=_some({NAME: times, **stable}))
    for gate, _ in _used(spec, ErrorsGate, used):
        answers = {NAME: BY_ENGINE.responses, **stable, "method": "POST"}
        yield EvidenceQuery(asked_by=f"gate {gate}", query=_some(answers))


def _used(spec: Delivery, kind: type[Kind], used: Container[str]) -> Iterator[tuple[str, Kind]]:
    """The gates of that kind that a stage asks, by name."""
    yield from ((gate, settings) for gate, settings in spec.gates.of(kind).items() if gate in used)


def _of_sources(spec: Delivery, region: str, used: Container[str]) -> Iterator[EvidenceQuery]:
    """The same, under others' names. Which version is stable is not known here, so a label of versions is not asked."""
    sources = spec.sources
    for gate, latency in _used(spec, LatencyGate, used):
        signal = MetricSignal(str(latency.metric))
        source = source_of(sources, signal)
        series = source and source.time_series(signal)
        if source and series:
            stable = {NAME: f"{series.metric}_count", **_stable(source, spec, region)}
            yield EvidenceQuery(asked_by=f"gate {gate}", query=_some(stable, {**source.matchers, **series.match}))
    counter = source_of(sources, MetricSignal.REQUESTS)
    requests = counter.request_series if counter else None
    if counter and requests:
        stable = {NAME: requests.metric, **_stable(counter, spec, region)}
        for gate, _ in _used(spec, ErrorsGate, used):
            yield EvidenceQuery(asked_by=f"gate {gate}", query=_some(stable, {**counter.matchers, **requests.match}))


def _stable(source: MetricSource, spec: Delivery, region: str) -> Mapping[str, str]:
    labels = source.labels_of(service=spec.metadata.name, region=region, role="stable", version="")
    of_version = "version" if source.has_own_labels else "" if source.names_roles else source.arm_label
    return {name: value for name, value in labels.items() if name != of_version}


def _some(labels: Mapping[str, str], like: Mapping[str, str] | None = None) -> str:
    return f"sum(increase({selector(labels, like=like)}[{WINDOW}])) > 0"


def _slos(spec: Delivery) -> Iterator[EvidenceQuery]:
    for item in spec.slos:
        # In a cluster it is the engines that are scraped, no matter who routes to them.
        sli = slo_of(item, service=spec.metadata.name, counted_by=CountedBy.ENGINE, sources=spec.sources).sli
        query = sli.total_query if isinstance(sli, EventSli) else sli.error_ratio_query
        yield EvidenceQuery(asked_by=f"SLO {item.name}", query=WINDOW_PLACE.sub(WINDOW, query))
