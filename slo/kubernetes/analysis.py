"""An Argo Rollouts `AnalysisTemplate` for an SLO: the alerts' burn rates, asked of one arm during a stage.

A pair's query gives one number, the lower burn of its two windows, and nothing at all when there were too few
events. The conditions never index the result: Argo Rollouts takes `result[0]` on an empty result for an error,
in some versions even behind a check of its length.
"""

from __future__ import annotations

import math
from datetime import timedelta

from pydantic import Field

from slo.kubernetes.arm_query import count_of_arm, of_arm
from slo.kubernetes.burn import PAGE, Pair, can_burn, scaled
from slo.model import Events, Slo
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

ARM = {"region": "{{args.region}}", "pod_template_hash": "{{args.pod-template-hash}}"}
"""Labels that the pod monitor sets on every series of an engine, and the arguments that choose among them."""

Manifest = dict[str, object]


class Stage(Value):
    """How long and how often a canary is asked."""

    length: timedelta = timedelta(minutes=30)
    interval: timedelta = timedelta(minutes=1)
    least_events: int = Field(default=50, ge=1)
    """In the long window; with fewer, nothing is said."""
    background: bool = False
    """Asked until the rollout ends, not a number of times."""


def analysis_template(slo: Slo, stage: Stage, *, prometheus: str, pairs: tuple[Pair, ...] = PAGE) -> Manifest:
    """The manifest, with a metric for every pair that the SLO's budget lets fire.

    Raises:
        UsageError: when the SLO does not count events, when no pair could fire, or when a query cannot be narrowed.
    """
    if not isinstance(slo.sli, Events):
        raise UsageError(f"{slo.id} counts no events", hint="give it an error_query and a total_query")
    if slo.error_budget == 0:
        raise UsageError(f"{slo.id} has no error budget to burn", hint="promise less than 100 percent")
    able = tuple(pair for pair in pairs if can_burn(pair, slo.error_budget))
    if not able:
        raise UsageError(f"{slo.id} never burns fast enough to be judged: {1 / slo.error_budget:.3g} times at most")
    able = scaled(able, stage.length)
    try:
        metrics = [_metric(slo, slo.sli, pair, stage) for pair in able]
    except ValueError as error:
        raise UsageError(f"{slo.id}: {error}") from error
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AnalysisTemplate",
        "metadata": {"name": slo.id},
        "spec": {"args": _arguments(able, stage, prometheus), "metrics": metrics},
    }


def _arguments(pairs: tuple[Pair, ...], stage: Stage, prometheus: str) -> list[Manifest]:
    given: list[Manifest] = [{"name": "region"}, {"name": "pod-template-hash"}]
    defaults = {"prometheus": prometheus, "least-events": str(stage.least_events)}
    for pair in pairs:
        defaults[f"{pair.name}-long"] = _seconds(pair.long)
        defaults[f"{pair.name}-short"] = _seconds(pair.short)
    return given + [{"name": name, "value": value} for name, value in defaults.items()]


def _metric(slo: Slo, sli: Events, pair: Pair, stage: Stage) -> Manifest:
    asked = 0 if stage.background else max(1, stage.length // stage.interval)
    until_warm = math.ceil(stage.length / stage.interval)
    return {
        "name": f"{pair.name}-burn",
        "interval": _seconds(stage.interval),
        **({} if stage.background else {"count": asked}),
        "failureCondition": f"len(result) == 1 && all(result, {{# > {pair.factor:g}}})",
        "successCondition": f"len(result) == 1 && all(result, {{# <= {pair.factor:g}}})",
        "failureLimit": 0,  # both windows burn: that is no blip
        "inconclusiveLimit": until_warm if stage.background else asked // 2,
        "consecutiveErrorLimit": 4,
        "provider": {"prometheus": {"address": "{{args.prometheus}}", "query": _burn(slo, sli, pair)}},
    }


def _burn(slo: Slo, sli: Events, pair: Pair) -> str:
    long, short = (f"{{{{args.{pair.name}-{side}}}}}" for side in ("long", "short"))
    enough = f"({count_of_arm(sli.total_query, window=long, arm=ARM)}) >= {{{{args.least-events}}}}"
    alive = f"({count_of_arm(sli.total_query, window=short, arm=ARM)}) > 0"
    lower = f"({_ratio(sli, short)} < {_ratio(sli, long)} or {_ratio(sli, long)})"
    return f"{lower} / {slo.error_budget:.12g}\nand on () ({enough})\nand on () ({alive})\n"


def _ratio(sli: Events, window: str) -> str:
    """Bad over all; an error series that does not exist yet counts as none bad, as long as there are events."""
    bad = of_arm(sli.error_query, window=window, arm=ARM)
    all_events = of_arm(sli.total_query, window=window, arm=ARM)
    return f"((({bad}) or on () 0 * ({all_events})) / ({all_events}))"


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.0f}s"
