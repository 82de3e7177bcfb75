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
from typing import NamedTuple

from slo.kubernetes.pod_monitor import ENGINE_SERIES
from slo.model import EventSli, KubernetesNames, Labels, Slo
from slo.outputs import manifest
from slo.promql import longest_step, of_arm, quotient, series_of
from slo.windows import windows_for
from tidegate.core.access import PrometheusAccess, PrometheusEndpoint, conflicts_for_rollouts
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.units import prometheus_duration

SHORTEST = timedelta(minutes=1)
"""Four scrapes at Prometheus' usual 15 s: a rate over less is often no rate at all."""
INTERVAL = timedelta(minutes=1)
"""Between two measurements."""
LEAST_EVENTS = 50
"""In the long window; with fewer, nothing is said."""
LEAST_LOOKS = 5
"""The same, where an SLO does not count events but looks at a level from time to time."""
NEVER = 1_000_000
"""So many undecided measurements in a row end a background run: at one every 10 seconds, after 115 days.

A background run that ends undecided while a step waits for engines sets `controllerPause`, and Argo Rollouts takes
that, without a pause of the step's own, for the end of every pause that follows (`CompletedCanaryPauseStep`): the
version would be promoted without anybody's word.
"""

BY_HASH: Labels = {"region": "{{args.region}}", "pod_template_hash": "{{args.pod-template-hash}}"}
"""Labels that the pod monitor sets on every series of an engine, and the arguments that choose among them."""
BY_VERSION: Labels = {"region": "{{args.region}}", "version": "{{args.version}}"}
"""For series that no pod exports of itself: those of proxies, judges and recording rules."""


class BurnPair(NamedTuple):
    """Both windows have to burn: the long one says that it matters, the short one that it still goes on."""

    name: str
    long: timedelta
    short: timedelta
    factor: float
    """Times the speed that spends the error budget exactly in the SLO's window."""


def paging_pairs(period: timedelta, stage: timedelta) -> tuple[BurnPair, ...]:
    """The two speeds of the alert that pages, of SLOs over `period`, on windows shrunk so that the longest is `stage`.

    They are whole seconds, and a minute at least.
    """
    windows = windows_for(period)
    speeds = {"fast": windows.page.quick, "slow": windows.page.slow}
    longest = max(window.long for window in speeds.values())

    def shrunk(window: timedelta) -> timedelta:
        return max(timedelta(seconds=round(window / longest * stage.total_seconds())), SHORTEST)

    return tuple(
        BurnPair(name, shrunk(window.long), shrunk(window.short), windows.factor(window))
        for name, window in speeds.items()
    )


def analysis_template(
    slo: Slo, *, stage: timedelta, background: bool, names: KubernetesNames, prometheus: PrometheusEndpoint
) -> Json:
    """The manifest, with a metric for every paging pair that can fire within the stage.

    Args:
        slo: is judged.
        stage: how long a canary is on trial.
        background: measured until the rollout ends, not a number of times.
        names: of the object.
        prometheus: as Argo Rollouts reaches it.

    Raises:
        UsageError: no pair can fire, the SLO has tickets and no pages, bad events are not told from all, a query
            cannot be narrowed, or Argo Rollouts cannot say who asks.
    """
    if slo.ticket and not slo.page:
        raise UsageError(
            f"{slo.id} has no alert that pages, so no analysis stops a rollout for it", hint="its ticket tells of it"
        )
    if slo.error_budget == 0:
        raise UsageError(f"{slo.id} has no error budget to burn", hint="set an objective below 100 %")
    # When every event is bad, the burn is one over the budget.
    pairs = [pair for pair in paging_pairs(slo.window, stage) if pair.factor * slo.error_budget < 1]
    if not pairs:
        raise UsageError(
            f"{slo.id} never burns fast enough to be judged: {1 / slo.error_budget:.3g} times at most",
            hint="set a higher objective",
        )
    try:
        events = _events(slo)
        arm = slo.canary or arm_of(events)
        of_arm(events.error_query, window="1m", arm=arm)
        step = longest_step(events.total_query)
    except ValueError as error:
        raise UsageError(f"{slo.id}: {error}") from error
    enough, least = ("least-looks", LEAST_LOOKS) if step else ("least-events", LEAST_EVENTS)
    pairs = [pair for pair in pairs if pair.long >= LEAST_LOOKS * step]
    if not pairs:
        raise UsageError(
            f"{slo.id}: {prometheus_duration(stage)} is too short for {LEAST_LOOKS} looks, one every "
            f"{prometheus_duration(step)}",
            hint="make the stage longer, or set a shorter interval",
        )
    access, settings = _provider(prometheus)
    values = {enough: str(least)}
    for pair in pairs:
        values |= {f"{pair.name}-long": _seconds(pair.long), f"{pair.name}-short": _seconds(pair.short)}
    given = dict.fromkeys(name for value in arm.values() for name in re.findall(r"\{\{args\.([a-z-]+)\}\}", value))
    times = max(1, stage // INTERVAL)
    metrics = [
        {
            "name": f"{slo.name}-{pair.name}-burn",
            "interval": _seconds(INTERVAL),
            **({} if background else {"count": times}),
            "failureCondition": f"len(result) == 1 && all(result, {{# > {pair.factor:g}}})",
            "successCondition": f"len(result) == 1 && all(result, {{# <= {pair.factor:g}}})",
            "failureLimit": 0,  # both windows burn: that is no blip
            "inconclusiveLimit": NEVER if background else times // 2,
            "consecutiveErrorLimit": 4,
            "provider": {"prometheus": {**settings, "query": _burn(events, arm, pair.name, enough, slo.error_budget)}},
        }
        for pair in pairs
    ]
    defaults = [{"name": name, "value": value} for name, value in values.items()]
    args = [*({"name": name} for name in given), access, *defaults]
    return manifest("argoproj.io/v1alpha1", "AnalysisTemplate", names, {"args": args, "metrics": metrics})


def arm_of(sli: EventSli) -> Labels:
    """The labels by which an arm's share of the events is known.

    Raises:
        ValueError: when a query is no PromQL that Prometheus 2 knows.
    """
    read = {series for query in (sli.error_query, sli.total_query) for series in series_of(query)}
    return BY_HASH if all(re.fullmatch(ENGINE_SERIES, series) for series in read) else BY_VERSION


def _events(slo: Slo) -> EventSli:
    """A share that is written as a quotient is one of bad events over all."""
    if isinstance(slo.sli, EventSli):
        return slo.sli
    both = quotient(slo.sli.error_ratio_query)
    if both is None:
        raise ValueError("its query is a share, not bad events over all, and how many there were is not known")
    return EventSli(error_query=both[0], total_query=both[1])


def _burn(events: EventSli, arm: Labels, pair: str, least: str, budget: float) -> str:
    """The lower burn of both windows; an error series that does not exist yet counts as none bad."""
    windows = {side: f"{{{{args.{pair}-{side}}}}}" for side in ("short", "long")}
    counts, ratios = {}, []
    for side, window in windows.items():
        counts[side] = f"({of_arm(events.total_query, window=window, arm=arm, counted=True)})"
        bad, total = (of_arm(query, window=window, arm=arm) for query in (events.error_query, events.total_query))
        # A label tells the two shares apart until the lower one is taken.
        ratios.append(f'label_replace(((({bad}) or on () 0 * ({total})) / ({total})), "over", "{side}", "", "")')
    lower = "min without (over) (\n" + "\nor\n".join(ratios) + f"\n) / {budget:.12g}"
    return f"{lower}\nand on () ({counts['long']} >= {{{{args.{least}}}}})\nand on () ({counts['short']} > 0)\n"


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.0f}s"


def _provider(endpoint: PrometheusEndpoint) -> tuple[Json, Json]:
    """The argument that says where Prometheus is or who asks, and the settings of `provider.prometheus`.

    With a Secret the address stands in the metric: an argument could be given another one, and the Secret with it.
    """
    for odd in conflicts_for_rollouts(endpoint):
        raise UsageError(f"Argo Rollouts cannot ask {endpoint.url}: {odd.found}", hint=f"give {odd.expected}")
    headers, settings, auth = [], Json(), endpoint.auth
    if endpoint.tenant:
        headers.append({"key": PrometheusAccess.TENANT_HEADER, "value": endpoint.tenant})
    secret = None
    if auth and (auth.bearer or auth.basic):
        secret = auth.bearer.secret if auth.bearer else auth.basic.header if auth.basic else None
        begins = "Bearer " if auth.bearer else ""
        headers.append({"key": "Authorization", "value": f"{begins}{{{{args.prometheus-authorization}}}}"})
    if headers:
        settings["headers"] = headers
    if auth and (aws := auth.sigv4):
        given = {"region": aws.region, "profile": aws.profile, "roleArn": aws.role}
        settings["authentication"] = {"sigv4": {key: value for key, value in given.items() if value}}
    if secret is None:
        return {"name": "prometheus", "value": endpoint.url}, {"address": "{{args.prometheus}}", **settings}
    value_from = {"secretKeyRef": {"name": secret.name, "key": secret.key}}
    return {"name": "prometheus-authorization", "valueFrom": value_from}, {"address": endpoint.url, **settings}
