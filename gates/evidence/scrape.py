"""From the raw series of both arms to one batch: requests and times, differenced first, summed afterwards."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gates.evidence import counters
from gates.evidence.batch import Batch, Buckets, LatencyMetric, PodEvidence
from gates.evidence.counters import NotCounts, Sample, counted
from gates.evidence.names import BUCKET, BUCKET_EDGE, EvidenceNames, names_of
from gates.evidence.series import ArmScrapes, PodKey, RawSeries, ScrapeWindow, Target, joined
from gates.model import Counts
from tidegate.core.metrics import RequestSeries, TimeSeries, fits

BROKEN_BEFORE_HEADERS = 503
LATE_BEFORE_HEADERS = 504
BROKEN_AFTER_HEADERS = 500
"""What it counts as, where a label tells it: neither of the codes that another counter has as well."""


def requests_of(arm: ArmScrapes, window: ScrapeWindow, counting: RequestSeries, *, pod_label: str) -> dict[str, Counts]:
    """By pod where the series have `pod_label`; without an entry when nobody tells of the arm."""
    by_target: dict[Target, list[RawSeries]] = defaultdict(list)
    for series in arm.series:
        if series.name in names_of(counting) and fits(series.labels, counting.match):
            # Labels that say which requests are users' tell series of one target apart.
            by_target[series.target(counting.status, *counting.match)].append(series)
    found: dict[str, list[Counts]] = defaultdict(list)
    for target, told in by_target.items():
        try:
            found[dict(target).get(pod_label, "")] += _intervals(f"{arm.arm} requests", told, window, counting)
        except NotCounts as problem:
            window.miss("requests", f"{problem} in {counting.metric} of {arm.key}")
    counts = {pod: _sum(intervals) for pod, intervals in found.items() if intervals}
    if not counts:
        window.miss("requests", f"Prometheus has no {counting.metric} of {arm.key} in this window")
    return counts


def outcome(by_code: Mapping[int, int], *, torn: int, timeouts: int) -> Counts:
    """What became of the requests of one scrape interval.

    The proxy counts each request once, under the status of its headers; what broke later is in `torn`
    and `timeouts`, together with what broke before its headers and is a 503 or 504 already. Asked for
    each interval alone, so that a 503 hides no stream that was cut at another time.
    A stream that was cut in a later interval than its headers is one more request here: no error is
    lost, and sums over intervals stay sums.
    """
    total = sum(by_code.values())
    refused = sum(count for code, count in by_code.items() if 400 <= code < 500)
    failed = sum(count for code, count in by_code.items() if code >= 500)
    failed += max(0, torn - by_code.get(BROKEN_BEFORE_HEADERS, 0))
    failed += max(0, timeouts - by_code.get(LATE_BEFORE_HEADERS, 0))
    return Counts(total=max(total, failed + refused), failed=failed, refused=refused)


def _intervals(what: str, told: Sequence[RawSeries], window: ScrapeWindow, counting: RequestSeries) -> list[Counts]:
    """Of one target, scrape by scrape; none when it was not scraped, or answered no request of the arm yet."""
    codes: dict[float, Counter[int]] = defaultdict(Counter)
    broken: dict[str | None, Counter[float]] = defaultdict(Counter)
    for series in told:
        times = [at for at, _ in series.values]
        inside, gained = window.gains(what, series.labels, times, counted([[value] for _, value in series.values]))
        of_users = series.name == counting.metric
        code = _code(series, counting) if of_users else 0
        for at, count in zip(inside, gained[:, 0].tolist(), strict=True):
            if of_users:
                codes[at][code] += count
            else:
                broken[series.name][at] += count
    if not codes:
        return []
    torn, late = broken[counting.cut], broken[counting.timeouts]
    return [outcome(codes.get(at, {}), torn=torn[at], timeouts=late[at]) for at in sorted({*codes, *torn, *late})]


def _code(series: RawSeries, counting: RequestSeries) -> int:
    """A class of codes, such as `5xx`, counts as its first one."""
    if counting.broken and fits(series.labels, counting.broken):
        return BROKEN_AFTER_HEADERS
    try:
        return int(series.labels.get(counting.status, "").replace("xx", "00"))
    except ValueError as error:
        raise NotCounts(f"no number as {counting.status}") from error


def _sum(intervals: Iterable[Counts]) -> Counts:
    columns = zip(*((each.total, each.failed, each.refused) for each in intervals), strict=True)
    total, failed, refused = map(sum, columns)
    return Counts(total=total, failed=failed, refused=refused)


def edge_of(series: RawSeries) -> float:
    """The upper edge of a bucket; NaN where it has none."""
    try:
        return float(series.labels.get(BUCKET_EDGE, "nan"))
    except ValueError:
        return math.nan


Gained = tuple[PodKey, Sequence[float], Sequence[int]]
"""Whose histogram it is, its edges, and what each of its bins gained."""


def summed(found: Sequence[Gained]) -> dict[PodKey, Buckets]:
    """By pod, on the edges that all of them share; empty when there are none."""
    common = counters.common_edges(edges for _, edges, _ in found)
    by_pod: dict[PodKey, list[Buckets]] = defaultdict(list)
    for pod, edges, counts in found if common else ():
        by_pod[pod].append(counters.buckets(edges, counts, common))
    return {
        pod: Buckets(edges=common, counts=tuple(map(sum, zip(*(part.counts for part in parts), strict=True))))
        for pod, parts in by_pod.items()
    }


def times_of(
    metric: LatencyMetric, arms: Sequence[ArmScrapes], window: ScrapeWindow, asked: TimeSeries, *, pod_label: str
) -> dict[PodKey, Buckets]:
    """On the edges that all pods of both arms share; when there are none, no pod has times."""
    found: list[Gained] = []
    for arm in arms:
        before = len(found)
        told = [one for one in arm.series if one.name == asked.metric + BUCKET and fits(one.labels, asked.match)]
        for target, by_edge in by_target(told, asked.seconds).items():
            try:
                times, edges, counts = counters.classic(by_edge)
            except NotCounts as problem:
                window.miss(str(metric), f"{problem} in {asked.metric} of {arm.key}")
                continue
            labels = dict(target)
            inside, gained = window.gains(f"{arm.arm} {metric}", labels, times, counts)
            if inside:
                found.append(((arm.arm, labels.get(pod_label, "")), edges, gained.sum(axis=0).tolist()))
        if len(found) == before:
            window.miss(str(metric), f"Prometheus has no {asked.metric} of {arm.key} in this window")
            if any(one.native and one.name == asked.metric for one in arm.series):
                window.miss(str(metric), "native histograms, also with custom buckets, are not read")
    by_pod = summed(found)
    if found and not by_pod:
        window.miss(str(metric), f"the histograms of {asked.metric} share no bucket edge")
    return by_pod


def by_target(buckets: Iterable[RawSeries], unit: float = 1.0) -> dict[Target, dict[float, Sequence[Sample]]]:
    """The buckets of each target by their upper edge, which is in units of so many seconds."""
    found: dict[Target, dict[float, Sequence[Sample]]] = defaultdict(dict)
    for one in buckets:
        by_edge, edge = found[one.target(BUCKET_EDGE)], edge_of(one) * unit
        by_edge[edge] = joined(by_edge.get(edge, ()), one.values)
    return found


def cached_of(
    arms: Sequence[ArmScrapes], window: ScrapeWindow, series: Sequence[str], *, pod_label: str
) -> dict[PodKey, list[int]]:
    """By pod, the prompts' tokens that came from its cache, and all; nothing when counters are none."""
    found: dict[PodKey, list[int]] = defaultdict(lambda: [0, 0])
    for arm, one in [(each.arm, one) for each in arms for one in each.series if one.name in series]:
        try:
            values = counted([[value] for _, value in one.values])
        except NotCounts:
            return {}
        _, gained = window.gains(f"{arm} prompts' tokens", one.labels, [at for at, _ in one.values], values)
        if tokens := int(gained.sum()):
            found[arm, one.labels.get(pod_label, "")][series.index(one.name)] += tokens
    return found


def batch_of(arms: Sequence[ArmScrapes], window: ScrapeWindow, names: EvidenceNames) -> Batch:
    """Both arms within the window, and why something is not in it."""
    requests: dict[PodKey, Counts] = {}
    if names.requests is None:
        window.miss("requests", "no source of this Prometheus tells requests")
    else:
        for arm in arms:
            for pod, counts in requests_of(arm, window, names.requests, pod_label=names.counting_pod).items():
                requests[arm.arm, pod] = counts
    times: dict[LatencyMetric, dict[PodKey, Buckets]] = {}
    for metric in LatencyMetric:
        if metric in names.times:
            series, pod_label = names.times[metric]
            times[metric] = times_of(metric, arms, window, series, pod_label=pod_label)
        else:
            window.miss(str(metric), f"no source of this Prometheus tells {metric}")
    tokens = cached_of(arms, window, names.cache[0], pod_label=names.cache[1])
    evidence = []
    for name, pod in sorted({*requests, *tokens, *(key for found in times.values() for key in found)}):
        counts = requests.get((name, pod), Counts(total=0, failed=0))
        of_pod: dict[str, Buckets | int] = {
            str(metric): found[name, pod] for metric, found in times.items() if (name, pod) in found
        }
        cached, whole = tokens.get((name, pod), (0, 0))
        counted = {"requests": counts.total, "errors": counts.failed, "refused": counts.refused}
        counted |= {"cached_tokens": min(cached, whole), "prompt_tokens": whole}
        evidence.append(PodEvidence.model_validate({"arm": name, "pod": pod} | counted | of_pod))
    return Batch(time=window.until, source="proxy", arms=tuple(evidence), missing=window.missing)
