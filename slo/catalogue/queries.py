"""What each kind of SLO counts as an event, and which events are bad."""

from __future__ import annotations

from slo.edges import Threshold, edge_label
from slo.metrics.tidegate import QUALITY
from slo.metrics.vllm import KV_CACHE_USAGE
from slo.model import Events, Raw, Sli
from slo.promql import REGION, WINDOW, Scope, of_service, selected, some, summed
from slo.requests import requests
from slo.spec import CountedBy, SloSpec

USERS = 'role=~"stable|canary|previous"'
"""Not the copies in `shadow`. A previous version answers when no other engine does, and just then it matters."""
SERVING = 'role=~"stable|canary"'
"""Of levels, which an idle previous version has too: it would make every region look better than it is."""

_REGIONS = Scope(window=WINDOW, matchers=(USERS,), by=REGION)
_STEP = "1m"
"""Between two looks at a level: 4,320 in the longest window that is looked at."""


def sli_of(item: SloSpec, *, service: str, counted_by: CountedBy) -> Sli:
    """The queries of one SLO of a service, by region; without a series where nothing happened."""
    sli = _of_anybody(item, counted_by)
    queries = {name: of_service(query, service) for name, query in sli}
    return sli.model_copy(update=queries)


def _of_anybody(item: SloSpec, counted_by: CountedBy) -> Sli:
    if item.errors:
        return _failed(item.errors.counted_by or counted_by)
    if item.kv_cache:
        return _share_of_time(selected(KV_CACHE_USAGE.name, SERVING), f"> bool {item.kv_cache.below:g}")
    if item.quality:
        dimension = f'dimension="{item.quality.dimension}"'
        return _share_of_time(selected(QUALITY.name, dimension, SERVING), f"< bool {item.quality.at_least:g}")
    assert item.threshold, "one kind is always said"
    return _slower(item.threshold)


def _failed(counted_by: CountedBy) -> Events:
    counted = requests(counted_by, _REGIONS)
    return Events(error_query=counted.failed, total_query=some(counted.judged))


def _slower(threshold: Threshold) -> Events:
    """Events beyond the edge. An engine without this bucket has no series, and so no share of bad events."""
    assert threshold.edge is not None, "a spec with another threshold is refused"
    everything = _REGIONS.rate(f"{threshold.histogram.name}_count")
    fast = _REGIONS.rate(f"{threshold.histogram.name}_bucket", f'le="{edge_label(threshold.edge)}"')
    return Events(error_query=f"{everything} - {fast}", total_query=some(everything))


def _share_of_time(gauge: str, bad: str) -> Raw:
    """Of the time of all engines of a region together, that in which the gauge is bad; NaN is no value."""
    known = f"({gauge} >= 0)"
    bad_looks = summed(f"sum_over_time(({known} {bad})[{WINDOW}:{_STEP}])", REGION)
    looks = summed(f"count_over_time({known}[{WINDOW}:{_STEP}])", REGION)
    return Raw(error_ratio_query=f"{bad_looks} / {looks}")
