"""Every check over a snapshot, in the order in which a person would look; and the diagnosis of a region.

A diagnosis takes two snapshots and reports only findings present in both, so that a reconcile in progress raises no
false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rollouts.doctor import region as around
from rollouts.doctor import rollout
from rollouts.doctor.gather import gather
from rollouts.doctor.model import (
    Check,
    DiagnosisTarget,
    Finding,
    Observation,
    PrometheusReader,
    QueryResult,
    Severity,
    Snapshot,
    Unread,
    error,
    note,
    warning,
)
from rollouts.kube.client import KubeClient
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.units import format_duration


@error(
    "prometheus-away",
    cause="the region's Prometheus does not answer, or its certificate is not trusted: no gate could decide",
    remediation="check its address and `ca` in the spec, and that it runs",
)
def _prometheus_away(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    if snapshot.away:
        yield f"Prometheus of {snapshot.target.region} does not answer", *snapshot.away


@error(
    "prometheus-credential",
    cause="the credential is not where the spec says, or the region's Prometheus does not take it: an expired "
    "token, an account without the right to query, or a server that expects a tenant",
    remediation="set the variable, mount the file or Secret, or correct `auth` or `tenant` of the region's "
    "`prometheus`; the evidence says which",
)
def _prometheus_credential(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    if snapshot.credential:
        yield f"Prometheus of {snapshot.target.region} cannot be queried with these credentials", *snapshot.credential


def _unanswered(snapshot: Snapshot) -> list[QueryResult]:
    """Queries without a sample."""
    return [each for each in snapshot.answers if not each.refused and all(map(math.isnan, each.samples))]


@error(
    "query-never-answered",
    cause="Prometheus cannot evaluate the query; or no target exports this metric, its exporter is not scraped, or "
    "`tenant` names another's series: the query can never have an answer",
    remediation="check the query, the name, that the exporter has it (some are for paying users only), the "
    "PodMonitor's labels, and `tenant`",
)
def _query_never_answered(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for answer in snapshot.answers:
        asked, names = answer.question, ", ".join(answer.unknown)
        if answer.refused:
            yield f"Prometheus refuses the query of {asked.asked_by}", asked.query, answer.refused
        elif names and not snapshot.is_empty:
            yield f"{asked.asked_by} asks for {names}, of which there is no series", asked.query


@warning(
    "query-without-samples",
    cause="the metric exists and the query has no answer now: labels that no series has, or no traffic",
    remediation="compare the query's labels with those of the series; send traffic before a delivery",
)
def _query_without_samples(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for answer in () if snapshot.is_empty else _unanswered(snapshot):
        if not answer.unknown:
            said = "NaN" if answer.samples else "nothing"
            yield f"{answer.question.asked_by} has no samples now: the answer is {said}", answer.question.query


TOLERATED = 0.2
"""Of the interval: a scrape that came late, or was missed, is no other interval."""


@warning(
    "scrape-interval-differs",
    cause="engines are scraped at another interval than the spec says: a look has fewer scrapes in it and verdicts "
    "come later, or a second monitor scrapes them more often",
    remediation="apply the PodMonitor that tidegate renders and see that no other one selects these pods, or set "
    "metrics.scrape_interval to what Prometheus does",
)
def _scrape_interval_differs(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    scraping, seen = snapshot.target.scraping, snapshot.scraped_every
    if scraping and seen and abs(seen - scraping.interval) > TOLERATED * scraping.interval:
        said = f"every {format_duration(seen)}, and `metrics.scrape_interval` is {format_duration(scraping.interval)}"
        look = f"a look of {format_duration(scraping.look)} has {scraping.look / seen:.1f} scrapes of each"
        yield f"{snapshot.target.region}: Prometheus scrapes engines {said}: {look}", scraping.query


@note(
    "not-looked-at",
    cause="these credentials may not read it, it is in another place, or it is not there before the first delivery: "
    "nothing is known of it",
    remediation="run the doctor with more rights, with --controller-namespace, or after the first delivery",
)
def _not_looked_at(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    hidden = [kind.plural for kind in snapshot.objects if snapshot.unread(kind) is Unread.FORBIDDEN]
    namespace = snapshot.target.controller_namespace
    if snapshot.controller_pods is None:
        hidden.append(f"the controller's namespace {namespace}")
    elif around.runs_elsewhere(snapshot):
        hidden.append(f"the controller, which works and is not in namespace {namespace}")
    askers = dict.fromkeys(answer.question.asked_by for answer in _unanswered(snapshot))
    if askers and snapshot.is_empty:
        hidden.append(f"metrics of {', '.join(askers)}, which the first delivery begins to scrape")
    if hidden:
        yield f"{len(hidden)} things were not looked at", ", ".join(hidden)


CHECKS = tuple(
    each
    for found in (vars(around), vars(rollout), globals().copy())
    for each in found.values()
    if isinstance(each, Check)
)
"""In the order of docs/reference/doctor.md."""

_WEIGHT = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def examine(snapshot: Snapshot) -> tuple[Finding, ...]:
    """All findings, errors first; within a severity in the order of the checks."""
    found = [finding for check in CHECKS for finding in check.findings(snapshot)]
    return tuple(sorted(found, key=lambda finding: _WEIGHT[finding.severity]))


BETWEEN_LOOKS_SECONDS = 5.0
"""A healthy controller has written everything that belongs together within a second or two."""


async def diagnose(
    region: KubeClient, prometheus: PrometheusReader | None, target: DiagnosisTarget, clock: Clock
) -> tuple[Finding, ...]:
    """What is wrong with the region, errors first; of what is more than a note, what two looks have found.

    Raises:
        FleetError: when the API server does not answer or does not know us.
    """
    first = examine(await gather(region, prometheus, target, clock))
    seen = {finding.code for finding in first if finding.severity is not Severity.NOTE}
    if not seen:
        return first
    await clock.sleep(BETWEEN_LOOKS_SECONDS)
    second = examine(await gather(region, prometheus, target, clock))
    return tuple(finding for finding in second if finding.severity is Severity.NOTE or finding.code in seen)
