"""What a Prometheus is asked for the evidence of an arm: which names, under which labels, by which selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import promql_parser as promql

from gates.evidence.batch import LatencyMetric
from gates.model import ArmKey
from tidegate.core.metrics import (
    STRING,
    MetricSignal,
    MetricSource,
    PresetName,
    RequestSeries,
    TimeSeries,
    escaped,
    presets,
    source_of,
    without_raw_strings,
)

NAME = "__name__"
"""The label that holds a series' name."""
BUCKET = "_bucket"
BUCKET_EDGE = "le"
POD = "pod"
"""Set by Prometheus' service discovery in Kubernetes."""
JOB = "job"
INSTANCE = "instance"
UP = "up"
"""1 at every scrape that succeeded, at the very time of its samples."""
PROCESS_START = "process_start_time_seconds"
"""Unix time, by the target's own clock."""

BY_PROXY = RequestSeries(
    # Once the headers are there. A stream cut after its headers is in here as a 200.
    metric="envoy_cluster_upstream_rq",
    status="envoy_response_code",
    # Connections that the engine closed under a request: before its headers (a 503 as well) or after.
    cut="envoy_cluster_upstream_cx_destroy_remote_with_active_rq",
    # An engine that fell silent, before its headers (a 504 as well) or after. There is no other limit in time.
    timeouts="envoy_cluster_upstream_rq_per_try_idle_timeout",
)
"""Envoy of this machine's fleet: sees cut streams, timeouts and engines that are gone."""


@dataclass(frozen=True)
class SeriesRead:
    """One query for each arm."""

    names: tuple[str, ...]
    source: MetricSource
    service: str = ""
    with_role: bool = False
    """Whether copies are counted apart, under a role of their own."""

    @property
    def like(self) -> Mapping[str, str]:
        """Labels with regular expressions."""
        return self.source.matchers

    def match(self, key: ArmKey) -> Mapping[str, str]:
        """An arm's labels."""
        of = {"service": self.service, "region": key.region, "role": key.role, "version": key.version}
        found = self.source.labels_of(**of, own=key.labels)
        return {**found, "role": key.role} if self.with_role and not key.labels else found


@dataclass(frozen=True)
class EvidenceNames:
    """All that is read, and how it is understood."""

    reads: tuple[SeriesRead, ...]
    requests: RequestSeries | None
    """None of a Prometheus that counts none; gates that ask for them are refused before."""
    times: Mapping[LatencyMetric, tuple[TimeSeries, str]]
    """With the label that tells the engines of an arm apart."""
    counting_pod: str
    """The label that tells for which engine requests are counted; empty for a gateway, whose pods are no arm's."""
    cache: tuple[tuple[str, ...], str]
    """The counters of cached tokens and of all, none where nobody has them, and the label of the engines."""
    target: Callable[[str], Mapping[str, str]]
    """Given a region, the labels of its targets: one address may be a target in several regions."""


def of_this_machine() -> EvidenceNames:
    """Requests by Envoy, which counts copies apart, and vLLM's times, under the labels of our own scrapes."""
    names = named_by([MetricSource(preset=PresetName.VLLM, requests=BY_PROXY)], service="")
    return replace(names, reads=tuple(replace(read, with_role=True) for read in names.reads), counting_pod="")


def named_by(sources: Sequence[MetricSource], *, service: str) -> EvidenceNames:
    """As the sources say it, each signal from the first that has it.

    `service` is the delivery's name, for sources with the labels of our own scrape configuration.
    """
    counter = source_of(sources, MetricSignal.REQUESTS)
    requests = counter.request_series if counter else None
    times: dict[LatencyMetric, tuple[TimeSeries, str]] = {}
    reads: dict[int, list[str]] = {}
    if counter and requests:
        reads[sources.index(counter)] = names_of(requests)
    for metric in LatencyMetric:
        source = source_of(sources, signal := MetricSignal(str(metric)))
        if source and (series := source.time_series(signal)):
            times[metric] = (series, source.pod_label)
            # The name alone is that of a native histogram, which is told and not read.
            reads.setdefault(sources.index(source), []).extend([series.metric, series.metric + BUCKET])
    caches = {place: presets()[preset].cache for place in reads if (preset := sources[place].preset)}
    cached, cache = next(((place, each) for place, each in caches.items() if each), (None, ()))
    if cached is not None:
        reads[cached].extend(cache)
    labels = {sources[place].region_label for place in reads}
    of_region = labels.pop() if len(labels) == 1 else ""
    return EvidenceNames(
        reads=tuple(SeriesRead(tuple(names), sources[place], service) for place, names in reads.items()),
        requests=requests,
        times=times,
        counting_pod=counter.pod_label if counter else "",
        cache=(cache, "" if cached is None else sources[cached].pod_label),
        target=lambda region: {of_region: region} if of_region and region else {},
    )


def names_of(requests: RequestSeries) -> list[str]:
    """Of all its counters."""
    return [name for name in (requests.metric, requests.cut, requests.timeouts) if name]


def selector(match: Mapping[str, str], *, like: Mapping[str, str] | None = None) -> str:
    """`{name="value",other=~"expression",...}`; those in `like` are regular expressions."""
    pairs = [f'{name}="{escaped(value)}"' for name, value in match.items()]
    pairs += [f'{name}=~"{escaped(value)}"' for name, value in (like or {}).items()]
    return "{" + ",".join(pairs) + "}"


PLACE = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")
"""What a query leaves open, written as `{{.version}}`."""
_TOKEN = re.compile(rf"{STRING.pattern}|{PLACE.pattern}", re.DOTALL)


def is_selector(query: str) -> bool:
    """Whether it is one selector with its labels, as PromQL reads it, and nothing around it."""
    try:
        found = promql.parse(without_raw_strings(PLACE.sub("x", query)))
    except ValueError:
        return False
    if not isinstance(found, promql.VectorSelector) or found.offset is not None or found.at is not None:
        return False
    return bool(found.matchers.matchers) and not found.matchers.or_matchers


def filled_places(query: str, places: Mapping[str, str]) -> str:
    """The query with nothing left open; `places` has a text for each, which ends no string that it stands in."""

    def fill(token: re.Match[str]) -> str:
        quote = "'" if token[0].startswith("'") else '"'
        return PLACE.sub(lambda place: escaped(places[place[1]], quote), token[0])

    return _TOKEN.sub(fill, without_raw_strings(query))
