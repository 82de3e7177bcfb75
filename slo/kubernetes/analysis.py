"""An Argo Rollouts `AnalysisTemplate` for an SLO: the alerts' burn rates, asked of one arm during a stage.

A pair's query gives one number, the lower burn of its two windows, and nothing at all when there were too few
events. The conditions never index the result: Argo Rollouts takes `result[0]` on an empty result for an error,
in some versions even behind a check of its length.

Templates of several SLOs may stand in one step: Argo Rollouts then puts them together, and refuses metrics of the
same name and arguments with different defaults. So metrics are named after their SLO, and arguments after pairs.
"""

from __future__ import annotations

import math
from datetime import timedelta

from pydantic import Field

from slo.kubernetes.arm_query import Arm, count_of_arm, of_arm, series_of
from slo.kubernetes.burn import Pair, can_burn, paging, scaled
from slo.kubernetes.manifest import Manifest, manifest
from slo.metrics import metric_of
from slo.metrics.vllm import VLLM
from slo.model import Events, KubernetesNames, Slo
from slo.windows import Windows
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

BY_HASH: Arm = {"region": "{{args.region}}", "pod_template_hash": "{{args.pod-template-hash}}"}
"""Labels that the pod monitor sets on every series of an engine, and the arguments that choose among them."""

BY_VERSION: Arm = {"region": "{{args.region}}", "version": "{{args.version}}"}
"""For series that no pod exports of itself: those of proxies, judges and recording rules."""


class Stage(Value):
    """How long and how often a canary is asked."""

    length: timedelta = timedelta(minutes=30)
    interval: timedelta = timedelta(minutes=1)
    least_events: int = Field(default=50, ge=1)
    """In the long window; with fewer, nothing is said."""
    background: bool = False
    """Asked until the rollout ends, not a number of times."""


def analysis_template(slo: Slo, stage: Stage, *, names: KubernetesNames, prometheus: str, windows: Windows) -> Manifest:
    """The manifest, with a metric for every paging pair of `windows` that the SLO's budget lets fire.

    Raises:
        UsageError: when the SLO does not count events, when no pair could fire, or when a query cannot be narrowed.
    """
    if not isinstance(slo.sli, Events):
        raise UsageError(f"{slo.id} counts no events", hint="give it an error_query and a total_query")
    if slo.error_budget == 0:
        raise UsageError(f"{slo.id} has no error budget to burn", hint="promise less than 100 percent")
    able = [pair for pair in scaled(paging(windows), stage.length) if can_burn(pair, slo.error_budget)]
    if not able:
        raise UsageError(f"{slo.id} never burns fast enough to be judged: {1 / slo.error_budget:.3g} times at most")
    try:
        arm = arm_of(slo.sli)
        metrics = [_metric(slo, _burn(slo, slo.sli, pair, arm), pair, stage) for pair in able]
    except ValueError as error:
        raise UsageError(f"{slo.id}: {error}") from error
    arguments = [*_arguments_of(arm), *_defaults(able, stage, prometheus)]
    return manifest("argoproj.io/v1alpha1", "AnalysisTemplate", names, {"args": arguments, "metrics": metrics})


def arm_of(sli: Events) -> Arm:
    """The labels by which an arm's share of the events is known.

    Raises:
        ValueError: when a query is no PromQL that Prometheus 2 knows.
    """
    read = {metric_of(series) for query in (sli.error_query, sli.total_query) for series in series_of(query)}
    return BY_HASH if read <= set(VLLM) else BY_VERSION


def _arguments_of(arm: Arm) -> list[Manifest]:
    return [{"name": place.removeprefix("{{args.").removesuffix("}}")} for place in arm.values()]


def _defaults(pairs: list[Pair], stage: Stage, prometheus: str) -> list[Manifest]:
    values = {"prometheus": prometheus, "least-events": str(stage.least_events)}
    for pair in pairs:
        values[f"{pair.name}-long"] = _seconds(pair.long)
        values[f"{pair.name}-short"] = _seconds(pair.short)
    return [{"name": name, "value": value} for name, value in values.items()]


def _metric(slo: Slo, query: str, pair: Pair, stage: Stage) -> Manifest:
    asked = 0 if stage.background else max(1, stage.length // stage.interval)
    until_warm = math.ceil(stage.length / stage.interval)
    return {
        "name": f"{slo.name}-{pair.name}-burn",
        "interval": _seconds(stage.interval),
        **({} if stage.background else {"count": asked}),
        "failureCondition": f"len(result) == 1 && all(result, {{# > {pair.factor:g}}})",
        "successCondition": f"len(result) == 1 && all(result, {{# <= {pair.factor:g}}})",
        "failureLimit": 0,  # both windows burn: that is no blip
        "inconclusiveLimit": until_warm if stage.background else asked // 2,
        "consecutiveErrorLimit": 4,
        "provider": {"prometheus": {"address": "{{args.prometheus}}", "query": query}},
    }


def _burn(slo: Slo, sli: Events, pair: Pair, arm: Arm) -> str:
    long, short = (f"{{{{args.{pair.name}-{side}}}}}" for side in ("long", "short"))
    enough = f"({count_of_arm(sli.total_query, window=long, arm=arm)}) >= {{{{args.least-events}}}}"
    alive = f"({count_of_arm(sli.total_query, window=short, arm=arm)}) > 0"
    slow, quick = _ratio(sli, long, arm), _ratio(sli, short, arm)
    lower = f"({quick} < {slow} or {slow})"
    return f"{lower} / {slo.error_budget:.12g}\nand on () ({enough})\nand on () ({alive})\n"


def _ratio(sli: Events, window: str, arm: Arm) -> str:
    """Bad over all; an error series that does not exist yet counts as none bad, as long as there are events."""
    bad = of_arm(sli.error_query, window=window, arm=arm)
    all_events = of_arm(sli.total_query, window=window, arm=arm)
    return f"((({bad}) or on () 0 * ({all_events})) / ({all_events}))"


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.0f}s"
