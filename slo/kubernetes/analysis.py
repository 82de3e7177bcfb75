"""An Argo Rollouts `AnalysisTemplate` for an SLO: the alerts' burn rates of one arm, on windows scaled to a stage.

A pair's query gives one number, the lower burn of its two windows, and nothing at all when there were too few
events. The conditions never index the result: Argo Rollouts takes `result[0]` on an empty result for an error,
in some versions even behind a check of its length.

Templates of several SLOs may stand in one step: Argo Rollouts then puts them together, and refuses metrics of the
same name and arguments with different defaults. So metrics are named after their SLO, and arguments after pairs.
"""

from __future__ import annotations

import re
from datetime import timedelta

from pydantic import Field

from slo.kubernetes.manifest import Manifest, manifest
from slo.kubernetes.provider import AnalysisProvider, analysis_provider
from slo.metrics import metric_of
from slo.metrics.vllm import VLLM
from slo.model import EventSli, KubernetesNames, RawSli, Slo
from slo.promql import Arm, count_of_arm, longest_step, of_arm, quotient, series_of
from slo.windows import AlertWindows
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.errors import UsageError
from tidegate.core.model import Value
from tidegate.core.units import prometheus_duration

SHORTEST = timedelta(minutes=1)
"""Four scrapes at Prometheus' usual 15 s: a rate over less is often no rate at all."""


class BurnPair(Value):
    """Both windows have to burn: the long one says that it matters, the short one that it still goes on."""

    name: str
    long: timedelta
    short: timedelta
    factor: float = Field(gt=0)
    """Times the speed that spends the error budget exactly in the SLO's window."""


def paging(windows: AlertWindows) -> tuple[BurnPair, ...]:
    """The two speeds of the alert that pages, of SLOs over the same period."""
    speeds = {"fast": windows.page.quick, "slow": windows.page.slow}
    return tuple(
        BurnPair(name=name, long=window.long, short=window.short, factor=window.factor)
        for name, window in speeds.items()
    )


def scaled(pairs: tuple[BurnPair, ...], stage: timedelta) -> tuple[BurnPair, ...]:
    """The same factors on windows shrunk so that the longest one is the stage; whole seconds, a minute at least."""
    longest = max(pair.long for pair in pairs)

    def shrunk(window: timedelta) -> timedelta:
        return max(timedelta(seconds=round(window / longest * stage.total_seconds())), SHORTEST)

    return tuple(pair.model_copy(update={"long": shrunk(pair.long), "short": shrunk(pair.short)}) for pair in pairs)


def can_burn(pair: BurnPair, error_budget: float) -> bool:
    """Whether the pair could ever fire: when every event is bad, the burn is one over the budget."""
    return pair.factor * error_budget < 1


BY_HASH: Arm = {"region": "{{args.region}}", "pod_template_hash": "{{args.pod-template-hash}}"}
"""Labels that the pod monitor sets on every series of an engine, and the arguments that choose among them."""

BY_VERSION: Arm = {"region": "{{args.region}}", "version": "{{args.version}}"}
"""For series that no pod exports of itself: those of proxies, judges and recording rules."""


class AnalysisStage(Value):
    """How long and how often the template measures a canary."""

    length: timedelta = timedelta(minutes=30)
    interval: timedelta = timedelta(minutes=1)
    least_events: int = Field(default=50, ge=1)
    """In the long window; with fewer, nothing is said."""
    least_looks: int = Field(default=5, ge=1)
    """The same, where an SLO does not count events but looks at a level from time to time."""
    background: bool = False
    """Asked until the rollout ends, not a number of times."""


class AnalysisQuery(Value):
    """What a template measures: the events of one arm, over pairs of windows."""

    events: EventSli
    arm: Arm
    pairs: tuple[BurnPair, ...] = Field(min_length=1)
    enough: tuple[str, int]
    """The name of an argument, and how many events it asks for by default."""


def analysis_query(slo: Slo, stage: AnalysisStage, windows: AlertWindows) -> AnalysisQuery:
    """Every paging pair of `windows` that can fire within the stage.

    Raises:
        UsageError: when there is none, when the SLO has tickets and no pages, when bad events are not told from all,
            or when a query cannot be narrowed.
    """
    if slo.ticket and not slo.page:
        raise UsageError(
            f"{slo.id} has no alert that pages, so no analysis stops a rollout for it", hint="its ticket tells of it"
        )
    if slo.error_budget == 0:
        raise UsageError(f"{slo.id} has no error budget to burn", hint="set an objective below 100 %")
    pairs = [pair for pair in scaled(paging(windows), stage.length) if can_burn(pair, slo.error_budget)]
    if not pairs:
        raise UsageError(
            f"{slo.id} never burns fast enough to be judged: {1 / slo.error_budget:.3g} times at most",
            hint="set a higher objective",
        )
    try:
        events = _events(slo.sli)
        arm = slo.canary or arm_of(events)
        of_arm(events.error_query, window="1m", arm=arm)
        step = longest_step(events.total_query)
    except ValueError as error:
        raise UsageError(f"{slo.id}: {error}") from error
    if not step:
        return AnalysisQuery(events=events, arm=arm, pairs=tuple(pairs), enough=("least-events", stage.least_events))
    long_enough = tuple(pair for pair in pairs if pair.long >= stage.least_looks * step)
    if not long_enough:
        length, every = prometheus_duration(stage.length), prometheus_duration(step)
        raise UsageError(
            f"{slo.id}: {length} is too short for {stage.least_looks} looks, one every {every}",
            hint="make the stage longer, or set a shorter interval",
        )
    return AnalysisQuery(events=events, arm=arm, pairs=long_enough, enough=("least-looks", stage.least_looks))


def arm_of(sli: EventSli) -> Arm:
    """The labels by which an arm's share of the events is known.

    Raises:
        ValueError: when a query is no PromQL that Prometheus 2 knows.
    """
    read = {metric_of(series) for query in (sli.error_query, sli.total_query) for series in series_of(query)}
    return BY_HASH if read <= set(VLLM) else BY_VERSION


def _events(sli: EventSli | RawSli) -> EventSli:
    """A share that is written as a quotient is one of bad events over all."""
    if isinstance(sli, EventSli):
        return sli
    both = quotient(sli.error_ratio_query)
    if both is None:
        raise ValueError("its query is a share, not bad events over all, and how many there were is not known")
    return EventSli(error_query=both[0], total_query=both[1])


NEVER = 1_000_000
"""So many undecided measurements in a row end a background run: at one every 10 seconds, after 115 days.

A background run that ends undecided while a step waits for engines sets `controllerPause`, and Argo Rollouts takes
that, without a pause of the step's own, for the end of every pause that follows (`CompletedCanaryPauseStep`): the
version would be promoted without anybody's word.
"""

_OVER = "over"
"""A label that tells the two windows' shares apart, until the lower one is taken."""


def analysis_template(
    slo: Slo, stage: AnalysisStage, *, names: KubernetesNames, prometheus: PrometheusEndpoint, windows: AlertWindows
) -> Manifest:
    """The manifest, with a metric for every paging pair of `windows` that can fire within the stage.

    Raises:
        UsageError: when there is none, when bad events are not told from all, when a query cannot be narrowed, or when
            Argo Rollouts cannot say who asks.
    """
    asked, provider = analysis_query(slo, stage, windows), analysis_provider(prometheus)
    spec: Manifest = {
        "args": [*({"name": name} for name in _given(asked)), *provider.args, *_defaults(asked)],
        "metrics": [_metric(slo, asked, pair, stage, provider) for pair in asked.pairs],
    }
    return manifest("argoproj.io/v1alpha1", "AnalysisTemplate", names, spec)


def _given(asked: AnalysisQuery) -> list[str]:
    """The arguments that a Rollout has to say."""
    return list(dict.fromkeys(name for value in asked.arm.values() for name in _ARGUMENT.findall(value)))


_ARGUMENT = re.compile(r"\{\{args\.([a-z-]+)\}\}")


def _defaults(asked: AnalysisQuery) -> list[Manifest]:
    name, least = asked.enough
    values = {name: str(least)}
    for pair in asked.pairs:
        values[f"{pair.name}-long"] = _seconds(pair.long)
        values[f"{pair.name}-short"] = _seconds(pair.short)
    return [{"name": name, "value": value} for name, value in values.items()]


def _metric(
    slo: Slo, asked: AnalysisQuery, pair: BurnPair, stage: AnalysisStage, provider: AnalysisProvider
) -> Manifest:
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
        "provider": {"prometheus": {**provider.settings, "query": query}},
    }


def _burn(asked: AnalysisQuery, pair: BurnPair, budget: float) -> str:
    long, short = (f"{{{{args.{pair.name}-{side}}}}}" for side in ("long", "short"))
    total = asked.events.total_query
    enough = f"({count_of_arm(total, window=long, arm=asked.arm)}) >= {{{{args.{asked.enough[0]}}}}}"
    alive = f"({count_of_arm(total, window=short, arm=asked.arm)}) > 0"
    ratios = "\nor\n".join(
        f'label_replace({_ratio(asked, window)}, "{_OVER}", "{name}", "", "")'
        for name, window in (("short", short), ("long", long))
    )
    return f"min without ({_OVER}) (\n{ratios}\n) / {budget:.12g}\nand on () ({enough})\nand on () ({alive})\n"


def _ratio(asked: AnalysisQuery, window: str) -> str:
    """Bad over all; an error series that does not exist yet counts as none bad, as long as there are events."""
    bad = of_arm(asked.events.error_query, window=window, arm=asked.arm)
    total = of_arm(asked.events.total_query, window=window, arm=asked.arm)
    return f"((({bad}) or on () 0 * ({total})) / ({total}))"


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.0f}s"
