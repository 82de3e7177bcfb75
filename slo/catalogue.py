"""The kinds of SLO of `delivery.yaml`: what each counts as an event, which are bad, and what its alerts say.

`slo_of` makes the SLO of one line of `slos`, and `group_of` those of a delivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple

from slo.metrics import ENGINE_READY, ENGINE_START, KV_CACHE_USAGE, QUALITY
from slo.model import Alert, EventSli, Labels, RawSli, Sli, Slo, SloGroup
from slo.promql import (
    REGION,
    WINDOW,
    Scope,
    matcher,
    nonzero,
    of_service,
    series_of_others,
    series_selector,
    sum_by,
)
from slo.signals import requests
from slo.spec import CountedBy, SloSpec, Threshold
from tidegate.core.metrics import MetricSource, source_of
from tidegate.core.units import format_duration, prometheus_duration


class Words(NamedTuple):
    """What is said of a kind of SLO."""

    good: str
    """What so many percent of, or of the time, users may count on."""
    breach: str
    """What is wrong when the promise is broken, as the end of a sentence on a region."""
    of: str = "of events were"


WORDS = {
    "errors": Words("requests get a whole answer and no server error", "requests fail"),
    "ttft": Words("requests get their first token within {below}", "first tokens come late"),
    "itl": Words("output tokens follow the one before within {below}", "tokens follow too slowly"),
    "e2e": Words("requests get their last token within {below}", "answers take too long"),
    "queue_time": Words("requests wait at most {below} in the engine's queue", "requests wait too long in the queue"),
    "tokens_per_second": Words(
        "requests get {at_least:g} output tokens a second or more", "requests get too few tokens a second"
    ),
    "kv_cache": Words(
        "the time the KV cache is at most {below:.0%} full", "the KV cache is too full", "of the time was"
    ),
    "quality": Words(
        "the time the judge's score '{dimension}' is {at_least:g} or more",
        "the judge's score is too low",
        "of the time was",
    ),
    "start": Words("engines take requests within {below} of their start", "engines start too slowly", "of starts were"),
}


def promise(item: SloSpec) -> str:
    """What users may count on: `99.9% of requests get an answer, over 30d`."""
    said = getattr(item, item.kind).model_dump()
    if isinstance(within := said.get("below"), timedelta):
        said["below"] = format_duration(within)
    return f"{item.objective:g}% of {WORDS[item.kind].good.format(**said)}, over {prometheus_duration(item.window)}"


USERS = 'role=~"stable|canary|previous"'
"""Not the copies in `shadow`. A previous version answers when no other engine does, and just then it matters."""
SERVING = 'role=~"stable|canary"'
"""Of levels, which an idle previous version has too: it would make every region look better than it is."""

_REGIONS = Scope(window=WINDOW, matchers=(USERS,), by=REGION)
_STEP = "1m"
"""Between two looks at a level: 4,320 in the longest window that is looked at."""


def _sli(item: SloSpec, counted_by: CountedBy, sources: Sequence[MetricSource], source: MetricSource | None) -> Sli:
    """The queries of one SLO of anybody, by region; without a series where nothing happened."""
    if item.errors:
        counted = requests(item.errors.counted_by or counted_by, _REGIONS, sources)
        return EventSli(error_query=counted.failed, total_query=nonzero(counted.judged))
    if item.quality:
        dimension = f'dimension="{item.quality.dimension}"'
        return _share_of_time(series_selector(QUALITY.name, dimension, SERVING), f"< bool {item.quality.at_least:g}")
    scope = _REGIONS.model_copy(update={"source": source})
    if item.kv_cache:
        serving = scope.model_copy(update={"matchers": (SERVING,)})
        return _share_of_time(serving.level(KV_CACHE_USAGE.name), f"> bool {item.kv_cache.below:g}")
    if item.start:
        return _slow_starts(scope, item.start.below.total_seconds())
    threshold = item.threshold_in(sources)
    assert threshold, "one kind is always said"
    return _slower(threshold, scope)


def _slower(threshold: Threshold, scope: Scope) -> EventSli:
    """Events beyond the edge. Engines without this bucket have no series, and are not counted."""
    name = threshold.histogram.name
    of_users = [matcher(*each) for each in threshold.series.match.items()] if threshold.series else []
    bucket = (f"{name}_bucket", threshold.at_edge, *of_users)
    # Where the edge is the spec's own, the engines of a version before it do not have it.
    everything = scope.rate(f"{name}_count", *of_users, beside=bucket if threshold.is_added else ())
    fast = scope.rate(*bucket)
    return EventSli(error_query=f"{everything} - {fast}", total_query=nonzero(everything))


COUNTED_AFTER_START = timedelta(minutes=10)
"""How long after its start an engine is looked at."""


def _slow_starts(scope: Scope, seconds: float) -> RawSli:
    """Of the engines that started a short while ago, those that took longer.

    A start is one event in the life of a process, whose counter would begin at 1: `increase` sees none of it. So the
    process says how long it took as a level, and each is looked at equally often, however long it serves afterwards.
    """
    young = f"(time() - {scope.level(ENGINE_READY.name)} < {COUNTED_AFTER_START.total_seconds():g})"
    started = f"({scope.level(ENGINE_START.name)} and ignoring (compile_cache) {young})"
    return _share_of_time(started, f"> bool {seconds:g}")


def _share_of_time(gauge: str, bad: str) -> RawSli:
    """Of the time of all engines of a region together, that in which the gauge is bad; NaN is no value."""
    known = f"({gauge} >= 0)"
    bad_looks = sum_by(f"sum_over_time(({known} {bad})[{WINDOW}:{_STEP}])", REGION)
    looks = sum_by(f"count_over_time({known}[{WINDOW}:{_STEP}])", REGION)
    return RawSli(error_ratio_query=f"{bad_looks} / {looks}")


Severity = Literal["page", "ticket"]

OWN_RUNBOOK = "docs/reference/slo-catalogue.md"
"""In tidegate's documentation; a section for each kind."""

_REGION = "{{ $labels.region }}"
_SHARE = "{{ $value | humanizePercentage }}"
_SPEED = {"page": "so fast that it will not last", "ticket": "faster than it may be"}


def alert(item: SloSpec, service: str, severity: Severity, *, by_region: bool = True) -> Alert:
    """Its label `region` comes from the series that it fires on, where these have one."""
    words = WORDS[item.kind]
    share = f"In {_REGION}, {_SHARE}" if by_region else _SHARE
    return Alert(
        name="".join(word.capitalize() for word in f"{service}-{item.name}".split("-")),
        annotations={
            "summary": f"{service}{f' in {_REGION}' if by_region else ''}: {words.breach}",
            "description": (
                f"{item.description or promise(item)}. {share} {words.of} bad lately; "
                f"the error budget is spent {_SPEED[severity]}."
            ),
            "runbook": item.runbook or f"{OWN_RUNBOOK}#{item.kind}",
        },
    )


def slo_of(item: SloSpec, *, service: str, counted_by: CountedBy, sources: Sequence[MetricSource] = ()) -> Slo:
    """The SLO of one line of `slos`; `counted_by` holds where neither the line nor a source says who counts requests.

    Its queries give one series for each region, over the users of stable and canary of `service` together.
    """
    source = source_of(sources, item.signal) if item.signal else None
    by_region = source is None or bool(source.region_label)
    sli, theirs = _sli(item, counted_by, sources, source), series_of_others(sources)
    # What a Rollout's analysis selects the canary by.
    canary: Labels = {}
    if source is not None and not source.has_own_labels:
        canary = source.labels_of(service="", region="{{args.region}}", role="canary", version="{{args.version}}")
    return Slo(
        service=service,
        name=item.name,
        description=item.description or promise(item),
        objective=item.objective,
        window=item.window,
        labels=item.labels,
        sli=sli.model_copy(update={name: of_service(query, service, but=theirs) for name, query in sli}),
        canary=canary,
        # Nobody has to get up for an engine that is there by now; and one of one is already all of them.
        page=None if item.start else alert(item, service, "page", by_region=by_region),
        ticket=alert(item, service, "ticket", by_region=by_region),
    )


def group_of(
    items: Iterable[SloSpec], *, service: str, counted_by: CountedBy, sources: Sequence[MetricSource] = ()
) -> SloGroup:
    """The SLOs of a delivery, one at least, as if they stood in one document of Sloth's own format."""
    slos = tuple(slo_of(item, service=service, counted_by=counted_by, sources=sources) for item in items)
    return SloGroup(slos=slos, mode="cli-gen-prom", spec="prometheus/v1")
