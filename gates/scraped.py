"""From the raw series of both arms to one batch: differenced first, summed afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gates import histograms, proxy_counts
from gates.conventions import BUCKET, BUCKET_EDGE, HISTOGRAMS, POD, RESPONSE_CODE, RESPONSES, TIMEOUTS, TORN
from gates.counters import Counts, NotCounts, Sample, counted
from gates.evidence import Arm, Batch, Buckets, PodEvidence
from gates.histograms import Histogram
from gates.model import ArmKey
from gates.model import Counts as Requests
from gates.series import RawSeries, Window
from gates.spec import LatencyMetric

_Pod = tuple[Arm, str]


@dataclass(frozen=True)
class ArmScrapes:
    """Everything that was scraped of one arm, from before the window to its end."""

    arm: Arm
    key: ArmKey
    series: Sequence[RawSeries]


@dataclass(frozen=True)
class _PodTimes:
    """What one histogram gained in the window."""

    pod: _Pod
    edges: tuple[float, ...]
    counts: Counts


@dataclass
class Assembly:
    """Puts one batch together; `missing` gathers why something is not in it."""

    window: Window
    pod_label: str = POD
    """Tells the engines of an arm apart."""
    proxy_pod_label: str = ""
    """Tells the proxies of an arm apart, where each engine has its own."""
    missing: dict[str, str] = field(default_factory=dict)

    def batch(self, arms: Sequence[ArmScrapes]) -> Batch:
        """Both arms within the window; a metric whose arms share no bucket edge is missing in both."""
        requests = {pod: counts for arm in arms for pod, counts in self._requests(arm).items()}
        times = {metric: self._times(metric, arms) for metric in LatencyMetric}
        pods = sorted({*requests, *(pod for found in times.values() for pod in found)})
        evidence = []
        for arm, pod in pods:
            counts = requests.get((arm, pod), Requests(total=0, failed=0))
            found = {str(metric): of_pod[arm, pod] for metric, of_pod in times.items() if (arm, pod) in of_pod}
            evidence.append(
                PodEvidence.model_validate(
                    {"arm": arm, "pod": pod, "requests": counts.total, "errors": counts.failed, **found}
                    | {"refused": counts.refused}
                )
            )
        return Batch(time=self.window.until, source="proxy", arms=tuple(evidence), missing=self.missing)

    def _requests(self, arm: ArmScrapes) -> dict[_Pod, Requests]:
        by_target: dict[frozenset[tuple[str, str]], list[RawSeries]] = defaultdict(list)
        for series in arm.series:
            if series.name in {RESPONSES, TORN, TIMEOUTS}:
                by_target[series.target(RESPONSE_CODE)].append(series)
        found: dict[_Pod, Requests] = {}
        for target, told in by_target.items():
            pod = (arm.arm, dict(target).get(self.proxy_pod_label, ""))
            try:
                counts = self._proxy(f"{arm.arm} requests", told)
            except NotCounts as problem:
                self._miss(f"{arm.arm} requests", f"{problem} in the proxy's counters of {arm.key}")
                continue
            if counts is not None:
                found[pod] = _sum(found.get(pod), counts)
        if not found:
            self._miss(f"{arm.arm} requests", f"Prometheus has no {RESPONSES} of {arm.key} in this window")
        return found

    def _proxy(self, what: str, told: Sequence[RawSeries]) -> Requests | None:
        """What one proxy counted, interval by interval; None when it was not scraped, or answered nothing yet."""
        codes: dict[float, dict[int, int]] = defaultdict(dict)
        broken: dict[str, dict[float, int]] = {TORN: {}, TIMEOUTS: {}}
        for series in told:
            gained = self._counter(what, series)
            if series.name == RESPONSES:
                code = _code(series)
                for at, count in gained:
                    codes[at][code] = codes[at].get(code, 0) + count
            else:
                broken[series.name].update(gained)
        if not codes:
            return None
        total: Requests | None = None
        for at in sorted({*codes, *broken[TORN], *broken[TIMEOUTS]}):
            torn, late = broken[TORN].get(at, 0), broken[TIMEOUTS].get(at, 0)
            total = _sum(total, proxy_counts.outcome(codes.get(at, {}), torn=torn, timeouts=late))
        return total

    def _counter(self, what: str, series: RawSeries) -> list[tuple[float, int]]:
        times = tuple(at for at, _ in series.values)
        gained = self.window.gains(series.labels, times, counted([[value] for _, value in series.values]))
        self._leave_out(what, gained.undated)
        return list(zip(gained.times, (int(count) for count in gained.counts[:, 0]), strict=True))

    def _times(self, metric: LatencyMetric, arms: Sequence[ArmScrapes]) -> dict[_Pod, Buckets]:
        scraped = {arm.arm: _forms(arm.series, HISTOGRAMS[metric]) for arm in arms}
        all_native = all(form.native for forms in scraped.values() for form in forms)
        found: list[_PodTimes] = []
        for arm in arms:
            what = f"{arm.arm} {metric}"
            of_arm: list[_PodTimes] = []
            for form in scraped[arm.arm]:
                try:
                    of_arm.extend(self._histogram(what, arm.arm, form, native=all_native))
                except NotCounts as problem:
                    self._miss(what, f"{problem} in {HISTOGRAMS[metric]} of {arm.key}")
            if not of_arm:
                self._miss(what, f"Prometheus has no {HISTOGRAMS[metric]} of {arm.key} in this window")
            found.extend(of_arm)
        return self._on_one_grid(metric, found)

    def _histogram(self, what: str, arm: Arm, form: _Form, *, native: bool) -> Iterator[_PodTimes]:
        histogram = form.read(native=native)
        gained = self.window.gains(form.labels, histogram.times, histogram.counts)
        self._leave_out(what, gained.undated)
        if gained.times:
            pod = form.labels.get(self.pod_label, "")
            yield _PodTimes(pod=(arm, pod), edges=histogram.edges, counts=gained.counts.sum(axis=0))

    def _on_one_grid(self, metric: LatencyMetric, found: Sequence[_PodTimes]) -> dict[_Pod, Buckets]:
        common = histograms.common_edges(times.edges for times in found)
        if found and not common:
            self._miss(str(metric), f"the histograms of {HISTOGRAMS[metric]} share no bucket edge")
        if not common:
            return {}
        by_pod: dict[_Pod, list[Buckets]] = defaultdict(list)
        for times in found:
            by_pod[times.pod].append(histograms.buckets(times.edges, times.counts.tolist(), common))
        return {
            pod: Buckets(edges=common, counts=tuple(np.sum([part.counts for part in parts], axis=0).tolist()))
            for pod, parts in by_pod.items()
        }

    def _miss(self, what: str, reason: str) -> None:
        self.missing.setdefault(what, reason)

    def _leave_out(self, what: str, undated: int) -> None:
        if undated:
            self._miss(f"{what} of unknown age", f"{undated} were counted before it is known when and as what")


@dataclass
class _Form:
    """One target's histogram, in one or both of the forms that a program may offer."""

    labels: Mapping[str, str]
    native: RawSeries | None = None
    by_edge: dict[float, Sequence[Sample]] = field(default_factory=dict)

    def read(self, *, native: bool) -> Histogram:
        """As `native`, or as classic where there is that form."""
        if self.native is not None and (native or not self.by_edge):
            return histograms.native(self.native.histograms)
        return histograms.classic(self.by_edge)


def _forms(series: Sequence[RawSeries], name: str) -> list[_Form]:
    forms: dict[frozenset[tuple[str, str]], _Form] = {}
    for one in series:
        target = one.target(BUCKET_EDGE)
        if one.name == name and one.histograms:
            forms.setdefault(target, _Form(labels=dict(target))).native = one
        elif one.name == name + BUCKET:
            edge = float(one.labels.get(BUCKET_EDGE, "nan"))
            forms.setdefault(target, _Form(labels=dict(target))).by_edge[edge] = one.values
    return list(forms.values())


def _code(series: RawSeries) -> int:
    try:
        return int(series.labels.get(RESPONSE_CODE, ""))
    except ValueError as error:
        raise NotCounts(f"{RESPONSES} without a number as {RESPONSE_CODE}") from error


def _sum(one: Requests | None, other: Requests) -> Requests:
    if one is None:
        return other
    return Requests(
        total=one.total + other.total, failed=one.failed + other.failed, refused=one.refused + other.refused
    )
