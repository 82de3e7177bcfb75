"""Requests, errors and refusals of one arm, from what its proxies or engines counted between scrapes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gates.model import Counts
from gates.scraped.counters import NotCounts, counted
from gates.scraped.counting import BY_PROXY, Counting
from gates.scraped.series import ArmScrapes, PodKey, RawSeries, Target, Window

BROKEN_BEFORE_HEADERS = 503
LATE_BEFORE_HEADERS = 504


def requests_of(
    arm: ArmScrapes, window: Window, *, pod_label: str, counting: Counting = BY_PROXY
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


def _intervals(what: str, told: Sequence[RawSeries], window: Window, counting: Counting) -> list[Counts]:
    """Of one target, scrape by scrape; none when it was not scraped, or answered no request of the arm yet."""
    codes: dict[float, Counter[int]] = defaultdict(Counter)
    broken: dict[str, dict[float, int]] = {counting.torn: {}, counting.timeouts: {}}
    for series in told:
        times = [at for at, _ in series.values]
        gained = window.gains(what, series.labels, times, counted([[value] for _, value in series.values]))
        steps = dict(zip(gained.times, gained.counts[:, 0].tolist(), strict=True))
        if series.name == counting.responses:
            code = _code(series, counting)
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


def _code(series: RawSeries, counting: Counting) -> int:
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
