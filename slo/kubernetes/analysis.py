"""An Argo Rollouts `AnalysisTemplate` for an SLO: the alerts' burn rates, asked of one arm during a stage.

A pair's query gives one number, the lower burn of its two windows, and nothing at all when there were too few
events. The conditions never index the result: Argo Rollouts takes `result[0]` on an empty result for an error,
in some versions even behind a check of its length.

Templates of several SLOs may stand in one step: Argo Rollouts then puts them together, and refuses metrics of the
same name and arguments with different defaults. So metrics are named after their SLO, and arguments after pairs.
"""

from __future__ import annotations

from datetime import timedelta

from slo.kubernetes.arm_query import count_of_arm, of_arm
from slo.kubernetes.burn import Pair
from slo.kubernetes.manifest import Manifest, manifest
from slo.kubernetes.question import Question, Stage, question_of
from slo.model import KubernetesNames, Slo
from slo.windows import Windows

NEVER = 1_000_000
"""So many undecided measurements in a row end a background run: at one every 10 seconds, after 115 days.

A background run that ends undecided while a step waits for engines sets `controllerPause`, and Argo Rollouts takes
that, without a pause of the step's own, for the end of every pause that follows (`CompletedCanaryPauseStep`): the
version would be promoted without anybody's word.
"""

_OVER = "over"
"""A label that tells the two windows' shares apart, until the lower one is taken."""


def analysis_template(slo: Slo, stage: Stage, *, names: KubernetesNames, prometheus: str, windows: Windows) -> Manifest:
    """The manifest, with a metric for every paging pair of `windows` that can fire within the stage.

    Raises:
        UsageError: when there is none, when bad events are not told from all, or when a query cannot be narrowed.
    """
    asked = question_of(slo, stage, windows)
    spec: Manifest = {
        "args": [*({"name": name} for name in _given(asked)), *_defaults(asked, prometheus)],
        "metrics": [_metric(slo, asked, pair, stage) for pair in asked.pairs],
    }
    return manifest("argoproj.io/v1alpha1", "AnalysisTemplate", names, spec)


def _given(asked: Question) -> list[str]:
    """The arguments that a Rollout has to say."""
    return [place.removeprefix("{{args.").removesuffix("}}") for place in asked.arm.values()]


def _defaults(asked: Question, prometheus: str) -> list[Manifest]:
    name, least = asked.enough
    values = {"prometheus": prometheus, name: str(least)}
    for pair in asked.pairs:
        values[f"{pair.name}-long"] = _seconds(pair.long)
        values[f"{pair.name}-short"] = _seconds(pair.short)
    return [{"name": name, "value": value} for name, value in values.items()]


def _metric(slo: Slo, asked: Question, pair: Pair, stage: Stage) -> Manifest:
    times = 0 if stage.background else max(1, stage.length // stage.interval)
    query = _burn(asked, pair, slo.error_budget)
    return {
        "name": f"{slo.name}-{pair.name}-burn",
        "interval": _seconds(stage.interval),
        **({} if stage.background else {"count": times}),
        "failureCondition": f"len(result) == 1 && all(result, {{# > {pair.factor:g}}})",
        "successCondition": f"len(result) == 1 && all(result, {{# <= {pair.factor:g}}})",
        "failureLimit": 0,  # both windows burn: that is no blip
        "inconclusiveLimit": NEVER if stage.background else times // 2,
        "consecutiveErrorLimit": 4,
        "provider": {"prometheus": {"address": "{{args.prometheus}}", "query": query}},
    }


def _burn(asked: Question, pair: Pair, budget: float) -> str:
    long, short = (f"{{{{args.{pair.name}-{side}}}}}" for side in ("long", "short"))
    total = asked.events.total_query
    enough = f"({count_of_arm(total, window=long, arm=asked.arm)}) >= {{{{args.{asked.enough[0]}}}}}"
    alive = f"({count_of_arm(total, window=short, arm=asked.arm)}) > 0"
    ratios = "\nor\n".join(
        f'label_replace({_ratio(asked, window)}, "{_OVER}", "{name}", "", "")'
        for name, window in (("short", short), ("long", long))
    )
    return f"min without ({_OVER}) (\n{ratios}\n) / {budget:.12g}\nand on () ({enough})\nand on () ({alive})\n"


def _ratio(asked: Question, window: str) -> str:
    """Bad over all; an error series that does not exist yet counts as none bad, as long as there are events."""
    bad = of_arm(asked.events.error_query, window=window, arm=asked.arm)
    total = of_arm(asked.events.total_query, window=window, arm=asked.arm)
    return f"((({bad}) or on () 0 * ({total})) / ({total}))"


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.0f}s"
