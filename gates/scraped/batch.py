"""From the raw series of both arms to one batch: differenced first, summed afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from gates.evidence import Batch, PodEvidence
from gates.model import Counts
from gates.scraped.conventions import POD
from gates.scraped.counting import BY_PROXY, Counting
from gates.scraped.requests import requests_of
from gates.scraped.series import ArmScrapes, Window
from gates.scraped.times import times_of
from gates.spec import LatencyMetric

_UNCOUNTED = Counts(total=0, failed=0)


def batch_of(
    arms: Sequence[ArmScrapes],
    window: Window,
    *,
    pod_label: str = POD,
    proxy_pod_label: str = "",
    counting: Counting = BY_PROXY,
) -> Batch:
    """Both arms within the window, and why something is not in it.

    `pod_label` tells the engines of an arm apart, `proxy_pod_label` whoever counts for one of them alone.
    """
    requests = {
        pod: counts
        for arm in arms
        for pod, counts in requests_of(arm, window, pod_label=proxy_pod_label, counting=counting).items()
    }
    times = {metric: times_of(metric, arms, window, pod_label=pod_label) for metric in LatencyMetric}
    evidence = []
    for arm, pod in sorted({*requests, *(key for found in times.values() for key in found)}):
        counts = requests.get((arm, pod), _UNCOUNTED)
        of_pod = {str(metric): found[arm, pod] for metric, found in times.items() if (arm, pod) in found}
        counted = {"requests": counts.total, "errors": counts.failed, "refused": counts.refused}
        evidence.append(PodEvidence.model_validate({"arm": arm, "pod": pod} | counted | of_pod))
    return Batch(time=window.until, source="proxy", arms=tuple(evidence), missing=window.missing)
