"""Times of both arms' requests, pod by pod, from the histograms of their engines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gates.evidence import Buckets
from gates.scraped import histograms
from gates.scraped.conventions import BUCKET, BUCKET_EDGE, HISTOGRAMS
from gates.scraped.counters import NotCounts, Sample
from gates.scraped.histograms import Histogram
from gates.scraped.series import ArmScrapes, PodKey, RawSeries, Target, Window
from gates.spec import LatencyMetric


@dataclass
class _Scraped:
    """One target's histogram, in one or both of the forms that a program may offer."""

    labels: Mapping[str, str]
    native: RawSeries | None = None
    by_edge: dict[float, Sequence[Sample]] = field(default_factory=dict)

    def read(self, *, native: bool) -> Histogram:
        """As `native`, or as classic where there is that form."""
        if self.native is not None and (native or not self.by_edge):
            return histograms.native(self.native.histograms)
        return histograms.classic(self.by_edge)


@dataclass(frozen=True)
class _Gained:
    """What one of them gained in the window."""

    pod: PodKey
    edges: tuple[float, ...]
    counts: list[int]


def times_of(
    metric: LatencyMetric, arms: Sequence[ArmScrapes], window: Window, *, pod_label: str
) -> dict[PodKey, Buckets]:
    """On the edges that all pods of both arms share; when there are none, no pod has times."""
    name = HISTOGRAMS[metric]
    scraped = [(arm, _by_target(arm.series, name)) for arm in arms]
    # Native ones are finer, but share hardly an edge with classic ones.
    native = all(one.native for _, told in scraped for one in told)
    found = [
        gained for arm, told in scraped for gained in _of_arm(arm, told, window, metric, native=native, label=pod_label)
    ]
    common = histograms.common_edges(gained.edges for gained in found)
    if found and not common:
        window.miss(str(metric), f"the histograms of {name} share no bucket edge")
    return _summed(found, common) if common else {}


def _of_arm(
    arm: ArmScrapes, told: Sequence[_Scraped], window: Window, metric: LatencyMetric, *, native: bool, label: str
) -> list[_Gained]:
    found: list[_Gained] = []
    for one in told:
        try:
            histogram = one.read(native=native)
        except NotCounts as problem:
            window.miss(str(metric), f"{problem} in {HISTOGRAMS[metric]} of {arm.key}")
            continue
        gained = window.gains(f"{arm.arm} {metric}", one.labels, histogram.times, histogram.counts)
        if gained.times:
            pod = (arm.arm, one.labels.get(label, ""))
            found.append(_Gained(pod=pod, edges=histogram.edges, counts=gained.counts.sum(axis=0).tolist()))
    if not found:
        window.miss(str(metric), f"Prometheus has no {HISTOGRAMS[metric]} of {arm.key} in this window")
    return found


def _summed(found: Sequence[_Gained], common: Sequence[float]) -> dict[PodKey, Buckets]:
    by_pod: dict[PodKey, list[Buckets]] = defaultdict(list)
    for gained in found:
        by_pod[gained.pod].append(histograms.buckets(gained.edges, gained.counts, common))
    return {
        pod: Buckets(edges=tuple(common), counts=tuple(map(sum, zip(*(part.counts for part in parts), strict=True))))
        for pod, parts in by_pod.items()
    }


def _by_target(series: Sequence[RawSeries], name: str) -> list[_Scraped]:
    found: dict[Target, _Scraped] = {}
    for one in series:
        target = one.target(BUCKET_EDGE)
        if one.name == name and one.histograms:
            found.setdefault(target, _Scraped(labels=dict(target))).native = one
        elif one.name == name + BUCKET:
            edge = float(one.labels.get(BUCKET_EDGE, "nan"))
            found.setdefault(target, _Scraped(labels=dict(target))).by_edge[edge] = one.values
    return list(found.values())
