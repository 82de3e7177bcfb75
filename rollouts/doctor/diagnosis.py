"""What is read of a region, every check over it in the order in which a person would look, and the diagnosis.

A diagnosis takes two snapshots, through the API server and its Prometheus, and changes nothing. It reports only what
is in both, so that a reconcile in progress raises no false alarm.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

from rollouts.cluster.region import foreign_objects
from rollouts.doctor import region as around
from rollouts.doctor import rollout
from rollouts.doctor.model import (
    Ask,
    Check,
    DiagnosisTarget,
    EvidenceQuery,
    Finding,
    Observation,
    QueryResult,
    Severity,
    Snapshot,
    Unread,
    error,
    metrics_of,
    note,
    warning,
)
from rollouts.errors import ApiError, Forbidden, NotFound
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import container_states, labels_of, name_of
from rollouts.kube.resources import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    DEPLOYMENTS,
    EVENTS,
    EVERYWHERE,
    POD_MONITORS,
    PODS,
    REPLICA_SETS,
    ROLLOUTS,
    SERVICES,
    AccessReview,
    Resource,
)
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.access import cluster_rights, rights
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import ForeignObject
from tidegate.core.access import CredentialMissing
from tidegate.core.adapters.prometheus import PrometheusDenied, PrometheusRefused, PrometheusUnreachable
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


def examine(snapshot: Snapshot) -> tuple[Finding, ...]:
    """All findings, errors first; within a severity in the order of the checks."""
    found = [finding for check in CHECKS for finding in check.findings(snapshot)]
    return tuple(sorted(found, key=lambda finding: list(Severity).index(finding.severity)))


async def gather(region: KubeClient, prometheus: Ask | None, target: DiagnosisTarget, clock: Clock) -> Snapshot:
    """One moment of the region.

    What may not be read is left out and marked so.

    Raises:
        FleetError: when the API server does not answer or does not know us.
    """
    rendered = (ROLLOUTS, target.routes.resource, SERVICES, DEPLOYMENTS, POD_MONITORS)
    kinds = [kind for kind in (*rendered, ADMISSION_POLICIES, ADMISSION_BINDINGS) if target.rendered(kind)]
    kinds += [REPLICA_SETS, PODS, EVENTS]
    readings = await asyncio.gather(*(_read(region, kind, target) for kind in kinds))
    foreign = list[ForeignObject]()
    for wanted in target.objects:
        with suppress(Forbidden):
            foreign += await foreign_objects(region, (wanted,), target.delivery)
    pods, deployments = [await _of_controller(region, kind, target) for kind in (PODS, DEPLOYMENTS)]
    seen = Snapshot(
        target=target,
        namespace=region.namespace,
        now=clock.now() + (region.ahead or timedelta()),
        objects=dict(zip(kinds, readings, strict=True)),
        controller_pods=pods,
        controller_deployed=bool(deployments),
        controller_log=await _log(region, target, pods or ()),
        denied=tuple([right for right in target.rights if not await region.allowed(right)]),
        foreign_objects=tuple(foreign),
        skew=region.ahead,
    )
    return seen if prometheus is None else await _with_answers(seen, prometheus, target)


async def _read(region: KubeClient, resource: Resource, target: DiagnosisTarget) -> tuple[Json, ...] | Unread:
    """All of a kind; where it may not be listed, those that are rendered."""
    try:
        with suppress(Forbidden):
            return await region.list(resource)
    except NotFound:
        return Unread.ABSENT
    names = [name_of(each) for each in target.rendered(resource)]
    try:
        found = [await region.find(resource, name) for name in names]
    except Forbidden:
        return Unread.FORBIDDEN
    return tuple(item for item in found if item) if names else Unread.FORBIDDEN


async def _of_controller(region: KubeClient, kind: Resource, target: DiagnosisTarget) -> tuple[Json, ...] | None:
    """Those of the controller, and not of the dashboard, which the Helm chart gives the same name."""
    labels, namespace = "app.kubernetes.io/name=argo-rollouts", target.controller_namespace
    with suppress(Forbidden, NotFound):
        found = await region.list(kind, labels=labels, namespace=namespace)
        return tuple(one for one in found if labels_of(one).get("app.kubernetes.io/component") != "rollouts-dashboard")
    return None


_LOG = "/api/v1/namespaces/{namespace}/pods/{pod}/log?tailLines=500{which}"
_TROUBLE = re.compile(r"level=(error|fatal)|panic:|fatal", re.IGNORECASE)
LOG_SECONDS = 1800
"""The controller tries again every 1000 s at the latest; what is older may have been corrected."""
LOG_LINES = 3
"""Enough to name a cause; the whole log is a kubectl away."""


async def _log(region: KubeClient, target: DiagnosisTarget, pods: tuple[Json, ...]) -> tuple[str, ...]:
    """The last lines about trouble with this Rollout or with a plugin; of the run before, where one crashed."""
    lines: list[str] = []
    for pod in pods:
        waits = any("waiting" in (state.get("state") or {}) for state in container_states(pod))
        which = "&previous=true" if waits else f"&sinceSeconds={LOG_SECONDS}"
        path = _LOG.format(namespace=target.controller_namespace, pod=name_of(pod), which=which)
        with suppress(ApiError):
            found = (await region.text(path)).splitlines()
            lines += [each for each in found if _TROUBLE.search(each) and (target.delivery in each or "plugin" in each)]
    return tuple(dict.fromkeys(lines[-LOG_LINES:]))


async def _with_answers(seen: Snapshot, ask: Ask, target: DiagnosisTarget) -> Snapshot:
    """The snapshot with what Prometheus says to the gates and SLOs."""
    answers: list[QueryResult] = []
    told: dict[str, object] = {}
    try:
        for question in target.questions:
            answers.append(await _answer(ask, question))
        if target.scraping:
            # Some servers that speak PromQL have no subqueries, and refuse it.
            interval = await _answer(ask, EvidenceQuery(asked_by="the spec", query=target.scraping.query))
            told["scraped_every"] = target.scraping.seen(interval.samples)
    except (PrometheusUnreachable, CredentialMissing) as error:
        is_credential = isinstance(error, CredentialMissing | PrometheusDenied)
        words = (str(error), *([error.detail] if error.detail and is_credential else ()))
        told["credential" if is_credential else "away"] = words
    return seen.model_copy(update={**told, "answers": tuple(answers)})


async def _answer(ask: Ask, question: EvidenceQuery) -> QueryResult:
    try:
        samples = await ask(question.query)
        if samples:
            return QueryResult(question=question, samples=samples)
        any_series = {name: f'count({{__name__="{name}"}})' for name in metrics_of(question.query)}
        unknown = [name for name, query in any_series.items() if not await ask(query)]
        return QueryResult(question=question, unknown=tuple(unknown))
    except PrometheusRefused as error:
        # Without the query, which is longer than what a person wants to know.
        return QueryResult(question=question, refused=error.detail or error.message)


def required_access(fleet: ArgoFleetSpec, release: Release) -> tuple[AccessReview, ...]:
    """Every right that a delivery of that engine needs in its region, one question for each verb and name."""
    site = Site(fleet=fleet, release=release)
    inside = [question for right in rights(site) for question in right.questions()]
    outside = [question for right in cluster_rights(site) for question in right.questions(EVERYWHERE)]
    return tuple(dict.fromkeys([*inside, *outside]))


BETWEEN_LOOKS_SECONDS = 5.0
"""A healthy controller has written everything that belongs together within a second or two."""


async def diagnose(
    region: KubeClient, prometheus: Ask | None, target: DiagnosisTarget, clock: Clock
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
