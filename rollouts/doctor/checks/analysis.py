"""Checks of analyses: whether one of Argo Rollouts would notice a canary that is worse."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rollouts.doctor.model import Check, Finding, Severity, Snapshot, of_rollout
from rollouts.doctor.strategy import in_progress, uses
from rollouts.kube.objects import at, name_of, owned_by, said
from rollouts.kube.resources import ANALYSIS_RUNS
from tidegate.core.model import Json

ANALYSIS_MISSING = Check(
    code="analysis-missing",
    severity=Severity.ERROR,
    cause="the Rollout names an AnalysisTemplate that is not there: it is InvalidSpec, and nothing moves",
    remediation=(
        "create the template in the Rollout's namespace, or correct the name (clusterScope: true for cluster-wide)"
    ),
)
ARGUMENT_MISSING = Check(
    code="analysis-argument-missing",
    severity=Severity.ERROR,
    cause="an argument of the template has no value, neither in the template nor in the Rollout",
    remediation="give it a value where the Rollout names the template",
)
NAN_PASSES = Check(
    code="analysis-nan-passes",
    severity=Severity.ERROR,
    cause="with failureCondition alone everything that does not fail passes, and NaN (0 of 0 requests) fails nothing",
    remediation="add a successCondition: with both, NaN is inconclusive",
)
NAN_FAILS = Check(
    code="analysis-nan-fails",
    severity=Severity.WARNING,
    cause="with successCondition alone everything that does not pass fails, NaN (0 of 0 requests) too: "
    "an hour without users takes a good version back",
    remediation="add a failureCondition: with both, NaN is inconclusive",
)
NO_CONDITION = Check(
    code="analysis-without-condition",
    severity=Severity.ERROR,
    cause="a metric without conditions passes whatever it measures",
    remediation="give it a successCondition and a failureCondition",
)
NEVER_MEASURED = Check(
    code="analysis-never-measured",
    severity=Severity.ERROR,
    cause="the metric waits longer than the others take; before v1.1 the controller ends the run when they are done, "
    "and it passes without the metric",
    remediation="upgrade Argo Rollouts, or make initialDelay shorter than `count` times `interval` of the others",
)
PASSED_UNMEASURED = Check(
    code="analysis-without-samples",
    severity=Severity.ERROR,
    cause="a run that is ended before its first measurement is Successful: the step passed on no evidence",
    remediation="let the step last until the first measurement; gates of tidegate do not pass without evidence",
)
MEASURES_ERRORS = Check(
    code="analysis-errors",
    severity=Severity.WARNING,
    cause="measurements end in errors, most often on an empty answer of Prometheus; five in a row abort the Rollout, "
    "which takes less than a minute",
    remediation="write conditions that hold for an empty result (len(result) == 0), and mend the query or the address",
)

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
WAITS_FOR_ALL = (1, 1)
"""The first version of Argo Rollouts in which a run waits for metrics that have not begun (PR 1407)."""


def templates(snapshot: Snapshot) -> Iterator[Finding]:
    """Every template that the Rollout uses is there, with values for its arguments."""
    for use in uses(snapshot):
        if use.template is None:
            yield ANALYSIS_MISSING.found(f"there is no {use.kind} {use.name}", f"named by {use.place}")
            continue
        for name in use.open_arguments:
            yield ARGUMENT_MISSING.found(
                f"{said(use.template)}: argument {name} has no value", f"used by {use.place} without it"
            )


def conditions(snapshot: Snapshot) -> Iterator[Finding]:
    """What a metric says of nothing at all."""
    for template in _used(snapshot):
        for metric in at(template, "spec", "metrics", default=[]):
            # A job says itself how it ended, and a dry run decides nothing.
            if "job" in at(metric, "provider", default={}) or _is_dry(template, metric):
                continue
            passes, fails = at(metric, "successCondition"), at(metric, "failureCondition")
            what = f"{said(template)}: metric {metric.get('name')}"
            if not passes and not fails:
                yield NO_CONDITION.found(f"{what} has no condition")
            elif not passes and "isNaN" not in fails and _may_be_nan(metric):
                yield NAN_PASSES.found(f"{what} passes when there is no traffic", f"failureCondition: {fails}")
            elif not fails and "isNaN" not in passes and _may_be_nan(metric):
                yield NAN_FAILS.found(f"{what} fails when there is no traffic", f"successCondition: {passes}")


def delays(snapshot: Snapshot) -> Iterator[Finding]:
    """No metric waits longer than the run lasts, under a controller that does not wait for it."""
    version = snapshot.controller.version
    if version is None or version >= WAITS_FOR_ALL:
        return
    for template in _used(snapshot):
        metrics = at(template, "spec", "metrics", default=[])
        for metric in metrics:
            delay = seconds(at(metric, "initialDelay", default="0s"))
            others = [other for other in metrics if other is not metric]
            if not delay or not others or any(_lasts(other) is None for other in others):
                continue
            longest = max(_lasts(other) or 0 for other in others)
            if delay > longest:
                yield NEVER_MEASURED.found(
                    f"{said(template)}: metric {metric.get('name')} is never measured",
                    f"initialDelay {delay:g} s; the others are done after {longest:g} s",
                )


@of_rollout
def runs(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """What became of the analyses of this Rollout: of the newest of each template, as names tell them apart."""
    for run in snapshot.all(ANALYSIS_RUNS):
        if not owned_by(run, rollout):
            continue
        results = at(run, "status", "metricResults", default=[])
        measured = [result for result in results if result.get("measurements") or result.get("count")]
        if at(run, "status", "phase") == "Successful" and not measured:
            yield PASSED_UNMEASURED.found(f"{said(run)} passed without a measurement", "status.metricResults: none")
        elif in_progress(rollout):
            yield from _errors(run, results)


def seconds(text: str) -> float:
    """A duration of Go, such as 1m30s; 0 for what is none."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h)", str(text)))


def _may_be_nan(metric: Json) -> bool:
    """A count is never NaN; a share and a quantile of nothing are. Of what is not Prometheus no one knows here."""
    query = at(metric, "provider", "prometheus", "query")
    return query is None or "/" in re.sub(r'"[^"]*"', "", query) or "quantile" in query


def _is_dry(template: Json, metric: Json) -> bool:
    names = [str(one.get("metricName")) for one in at(template, "spec", "dryRun", default=[])]
    return any(re.fullmatch(name, str(metric.get("name"))) for name in names)


def _used(snapshot: Snapshot) -> list[Json]:
    """Each template that the Rollout uses, once."""
    found = {(use.kind, use.name): use.template for use in uses(snapshot) if use.template}
    return list(found.values())


def _lasts(metric: Json) -> float | None:
    """Seconds until it has been measured as often as it is to be; None when that is for as long as the run lasts."""
    interval, count = at(metric, "interval"), at(metric, "count")
    if interval is None:
        return seconds(at(metric, "initialDelay", default="0s"))
    if not str(count or "").isdecimal() or int(count) == 0:
        return None
    return seconds(at(metric, "initialDelay", default="0s")) + (int(count) - 1) * seconds(interval)


def _errors(run: Json, results: list[Json]) -> Iterator[Finding]:
    for result in results:
        if int(at(result, "consecutiveError", default=0)) > 1:
            last = at(result, "measurements", -1, "message", default="no message")
            yield MEASURES_ERRORS.found(
                f"{name_of(run)}: metric {result.get('name')} cannot be measured",
                f"{result['consecutiveError']} errors in a row; the last: {last}",
            )


CHECKS = (
    ANALYSIS_MISSING,
    ARGUMENT_MISSING,
    NAN_PASSES,
    NAN_FAILS,
    NO_CONDITION,
    NEVER_MEASURED,
    PASSED_UNMEASURED,
    MEASURES_ERRORS,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    templates,
    conditions,
    delays,
    runs,
)
