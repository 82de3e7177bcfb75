"""From the raw series of both arms to one batch: requests and times, differenced first, summed afterwards."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gates.evidence import counters
from gates.evidence.batch import Batch, Buckets, LatencyMetric, PodEvidence
from gates.evidence.conventions import (
    BUCKET,
    BUCKET_EDGE,
    BY_PROXY,
    BY_VLLM,
    POD,
    Histograms,
    RequestCounters,
    TimesHistogram,
)
from gates.evidence.counters import Histogram, NotCounts, Sample, counted
from gates.evidence.series import ArmScrapes, PodKey, RawSeries, ScrapeWindow, Target, joined
from gates.model import Counts
from tidegate.core.metrics import fits

BROKEN_BEFORE_HEADERS = 503
LATE_BEFORE_HEADERS = 504
BROKEN_AFTER_HEADERS = 500
"""What it counts as, where a label tells it: neither of the codes that another counter has as well."""


def requests_of(
    arm: ArmScrapes, window: ScrapeWindow, *, pod_label: str, counting: RequestCounters = BY_PROXY
) -> dict[PodKey, Counts]:
    """By pod where the series have `pod_label`; without an entry when nobody tells of the arm."""
    by_target: dict[Target, list[RawSeries]] = defaultdict(list)
    for series in arm.series:
        if series.name in counting.names and counting.is_of_users(series.labels):
            by_target[series.target(counting.status, *counting.own)].append(series)
    found: dict[PodKey, list[Counts]] = defaultdict(list)
    for target, told in by_target.items():
        try:
            found[arm.arm, dict(target).get(pod_label, "")] += _intervals(f"{arm.arm} requests", told, window, counting)
        except NotCounts as problem:
            window.miss("requests", f"{problem} in {counting.whose} counters of {arm.key}")
    counts = {pod: _sum(intervals) for pod, intervals in found.items() if intervals}
    if not counts:
        window.miss("requests", f"Prometheus has no {counting.responses} of {arm.key} in this window")
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


def _intervals(what: str, told: Sequence[RawSeries], window: ScrapeWindow, counting: RequestCounters) -> list[Counts]:
    """Of one target, scrape by scrape; none when it was not scraped, or answered no request of the arm yet."""
    codes: dict[float, Counter[int]] = defaultdict(Counter)
    broken: dict[str, dict[float, int]] = {counting.torn: {}, counting.timeouts: {}}
    for series in told:
        times = [at for at, _ in series.values]
        gained = window.gains(what, series.labels, times, counted([[value] for _, value in series.values]))
        steps = dict(zip(gained.times, gained.counts[:, 0].tolist(), strict=True))
        if series.name == counting.responses:
            code = BROKEN_AFTER_HEADERS if counting.is_broken(series.labels) else _code(series, counting)
            for at, count in steps.items():
                codes[at][code] += count
        else:
            broken[series.name] = steps
    if not codes:
        return []
    torn, late = broken[counting.torn], broken[counting.timeouts]
    return [
        outcome(codes.get(at, {}), torn=torn.get(at, 0), timeouts=late.get(at, 0))
        for at in sorted({*codes, *torn, *late})
    ]


def _code(series: RawSeries, counting: RequestCounters) -> int:
    """A class of codes, such as `5xx`, counts as its first one."""
    try:
        return int(series.labels.get(counting.status, "").replace("xx", "00"))
    except ValueError as error:
        raise NotCounts(f"{counting.responses} without a number as {counting.status}") from error


def _sum(intervals: Iterable[Counts]) -> Counts:
    all_of_them = list(intervals)
    return Counts(
        total=sum(counts.total for counts in all_of_them),
        failed=sum(counts.failed for counts in all_of_them),
        refused=sum(counts.refused for counts in all_of_them),
    )


@dataclass
class _Scraped:
    """One target's histogram, in one or both of the forms that a program may offer."""

    labels: Mapping[str, str]
    native: RawSeries | None = None
    by_edge: dict[float, Sequence[Sample]] = field(default_factory=dict)

    def read(self, *, native: bool, custom: Sequence[float]) -> Histogram:
        """As `native`, or as classic where there is that form."""
        if self.native is not None and (native or not self.by_edge):
            return counters.native(self.native.histograms, custom)
        return counters.classic(self.by_edge)


@dataclass(frozen=True)
class _Gained:
    """What one of them gained in the window."""

    pod: PodKey
    edges: tuple[float, ...]
    counts: list[int]


def times_of(
    metric: LatencyMetric,
    arms: Sequence[ArmScrapes],
    window: ScrapeWindow,
    *,
    pod_label: str,
    histograms: Histograms = BY_VLLM,
) -> dict[PodKey, Buckets]:
    """On the edges that all pods of both arms share; when there are none, no pod has times."""
    asked = histograms.get(metric)
    if asked is None:
        window.miss(str(metric), f"no source of this Prometheus tells {metric}")
        return {}
    scraped = [(arm, _by_target(arm.series, asked)) for arm in arms]
    # Native ones are finer, but share hardly an edge with classic ones.
    native = all(one.native for _, told in scraped for one in told)
    custom = counters.custom_edges(one.native.histograms for _, told in scraped for one in told if one.native)
    question = _TimesQuestion(metric, asked.name, pod_label if asked.pod is None else asked.pod, native, custom)
    found = [gained for arm, told in scraped for gained in _of_arm(arm, told, window, question)]
    common = counters.common_edges(gained.edges for gained in found)
    if found and not common:
        window.miss(str(metric), f"the histograms of {asked.name} share no bucket edge")
    return _summed(found, common) if common else {}


@dataclass(frozen=True)
class _TimesQuestion:
    """What is asked of every target of an arm."""

    metric: LatencyMetric
    name: str
    """The histogram's, for people."""
    label: str
    """That tells engines apart."""
    native: bool
    custom: tuple[float, ...]
    """Edges of native ones that lie on no grid."""


def _of_arm(arm: ArmScrapes, told: Sequence[_Scraped], window: ScrapeWindow, asked: _TimesQuestion) -> list[_Gained]:
    metric = asked.metric
    found: list[_Gained] = []
    for one in told:
        try:
            histogram = one.read(native=asked.native, custom=asked.custom)
        except NotCounts as problem:
            window.miss(str(metric), f"{problem} in {asked.name} of {arm.key}")
            continue
        gained = window.gains(f"{arm.arm} {metric}", one.labels, histogram.times, histogram.counts)
        if gained.times:
            pod = (arm.arm, one.labels.get(asked.label, ""))
            found.append(_Gained(pod=pod, edges=histogram.edges, counts=gained.counts.sum(axis=0).tolist()))
    if not found:
        window.miss(str(metric), f"Prometheus has no {asked.name} of {arm.key} in this window")
    return found


def _summed(found: Sequence[_Gained], common: Sequence[float]) -> dict[PodKey, Buckets]:
    by_pod: dict[PodKey, list[Buckets]] = defaultdict(list)
    for gained in found:
        by_pod[gained.pod].append(counters.buckets(gained.edges, gained.counts, common))
    return {
        pod: Buckets(edges=tuple(common), counts=tuple(map(sum, zip(*(part.counts for part in parts), strict=True))))
        for pod, parts in by_pod.items()
    }


def _by_target(series: Sequence[RawSeries], asked: TimesHistogram) -> list[_Scraped]:
    found: dict[Target, _Scraped] = {}
    for one in series:
        if not fits(one.labels, asked.only):
            continue
        target = one.target(BUCKET_EDGE)
        if one.name == asked.name and one.histograms:
            found.setdefault(target, _Scraped(labels=dict(target))).native = _in_seconds(one, asked.unit_seconds)
        elif one.name == asked.name + BUCKET:
            edge = float(one.labels.get(BUCKET_EDGE, "nan")) * asked.unit_seconds
            scraped = found.setdefault(target, _Scraped(labels=dict(target)))
            scraped.by_edge[edge] = joined(scraped.by_edge.get(edge, ()), one.values)
    return list(found.values())


def _in_seconds(series: RawSeries, unit: float) -> RawSeries:
    # Powers of two of milliseconds lie on no grid of seconds: they are read as custom edges.
    scaled = [
        (at, tuple((rule, left * unit, right * unit, count) for rule, left, right, count in buckets))
        for at, buckets in series.histograms
    ]
    return series if unit == 1 else replace(series, histograms=tuple(scaled))


_UNCOUNTED = Counts(total=0, failed=0)


def batch_of(
    arms: Sequence[ArmScrapes],
    window: ScrapeWindow,
    *,
    pod_label: str = POD,
    proxy_pod_label: str = "",
    counting: RequestCounters = BY_PROXY,
    histograms: Histograms = BY_VLLM,
) -> Batch:
    """Both arms within the window, and why something is not in it.

    `pod_label` tells the engines of an arm apart, `proxy_pod_label` the one who counts for one of them alone.
    """
    requests = {
        pod: counts
        for arm in arms
        for pod, counts in requests_of(arm, window, pod_label=proxy_pod_label, counting=counting).items()
    }
    times = {
        metric: times_of(metric, arms, window, pod_label=pod_label, histograms=histograms) for metric in LatencyMetric
    }
    evidence = []
    for arm, pod in sorted({*requests, *(key for found in times.values() for key in found)}):
        counts = requests.get((arm, pod), _UNCOUNTED)
        of_pod = {str(metric): found[arm, pod] for metric, found in times.items() if (arm, pod) in found}
        counted = {"requests": counts.total, "errors": counts.failed, "refused": counts.refused}
        evidence.append(PodEvidence.model_validate({"arm": arm, "pod": pod} | counted | of_pod))
    return Batch(time=window.until, source="proxy", arms=tuple(evidence), missing=window.missing)
