"""The snapshot of a region, read through the API server and its Prometheus. Reads only; changes nothing."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

from rollouts.cluster.region import foreign_objects
from rollouts.doctor.model import (
    DiagnosisTarget,
    EvidenceQuery,
    PrometheusReader,
    QueryResult,
    Snapshot,
    Unread,
    metrics_of,
)
from rollouts.errors import ApiError, Forbidden, NotFound
from rollouts.kube.client import KubeClient
from rollouts.kube.model import EVERYWHERE, AccessReview, Resource
from rollouts.kube.objects import container_states, labels_of, name_of
from rollouts.kube.resources import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    DEPLOYMENTS,
    EVENTS,
    POD_MONITORS,
    PODS,
    REPLICA_SETS,
    ROLLOUTS,
    SERVICES,
)
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.access import cluster_rights, rights
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import ForeignObject
from tidegate.core.access import CredentialMissing
from tidegate.core.adapters.prometheus import PrometheusDenied, PrometheusRefused, PrometheusUnreachable
from tidegate.core.clock import Clock
from tidegate.core.model import Json


async def gather(
    region: KubeClient, prometheus: PrometheusReader | None, target: DiagnosisTarget, clock: Clock
) -> Snapshot:
    """One moment of the region.

    What may not be read is left out and marked so.

    Raises:
        FleetError: when the API server does not answer or does not know us.
    """
    rendered = (ROLLOUTS, target.routes.resource, SERVICES, DEPLOYMENTS, POD_MONITORS)
    kinds = [kind for kind in (*rendered, ADMISSION_POLICIES, ADMISSION_BINDINGS) if target.rendered(kind)]
    kinds += [REPLICA_SETS, PODS, EVENTS]
    readings = await asyncio.gather(*(_read(region, kind, target) for kind in kinds))
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
        foreign_objects=await _foreign_objects(region, target),
        skew=region.ahead,
    )
    return seen if prometheus is None else await _with_answers(seen, prometheus, target)


async def _read(region: KubeClient, resource: Resource, target: DiagnosisTarget) -> tuple[Json, ...] | Unread:
    """All of a kind; where it may not be listed, those that are rendered."""
    try:
        return (await region.list(resource)).items
    except NotFound:
        return Unread.ABSENT
    except Forbidden:
        pass
    names = [name_of(each) for each in target.rendered(resource)]
    try:
        found = [await region.find(resource, name) for name in names]
    except Forbidden:
        return Unread.FORBIDDEN
    return tuple(item for item in found if item) if names else Unread.FORBIDDEN


async def _foreign_objects(region: KubeClient, target: DiagnosisTarget) -> tuple[ForeignObject, ...]:
    found: list[ForeignObject] = []
    for wanted in target.objects:
        try:
            found += await foreign_objects(region, (wanted,), target.delivery)
        except Forbidden:
            continue
    return tuple(found)


async def _of_controller(region: KubeClient, kind: Resource, target: DiagnosisTarget) -> tuple[Json, ...] | None:
    """Those of the controller, and not of the dashboard, which the Helm chart gives the same name."""
    labels, namespace = "app.kubernetes.io/name=argo-rollouts", target.controller_namespace
    try:
        found = (await region.list(kind, labels=labels, namespace=namespace)).items
    except (Forbidden, NotFound):
        return None
    return tuple(one for one in found if labels_of(one).get("app.kubernetes.io/component") != "rollouts-dashboard")


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
        try:
            found = (await region.text(path)).splitlines()
        except ApiError:
            continue
        lines += [each for each in found if _TROUBLE.search(each) and (target.delivery in each or "plugin" in each)]
    return tuple(dict.fromkeys(lines[-LOG_LINES:]))


async def _with_answers(seen: Snapshot, prometheus: PrometheusReader, target: DiagnosisTarget) -> Snapshot:
    """The snapshot with what Prometheus says to the gates and SLOs."""
    answers: list[QueryResult] = []
    told: dict[str, object] = {}
    try:
        for question in target.questions:
            answers.append(await _answer(prometheus, question))
        if target.scraping:
            # Some servers that speak PromQL have no subqueries, and refuse it.
            interval = await _answer(prometheus, EvidenceQuery(asked_by="the spec", query=target.scraping.query))
            told["scraped_every"] = target.scraping.seen(interval.samples)
    except (PrometheusUnreachable, CredentialMissing) as error:
        is_credential = isinstance(error, CredentialMissing | PrometheusDenied)
        words = (str(error), *([error.detail] if error.detail and is_credential else ()))
        told["credential" if is_credential else "away"] = words
    return seen.model_copy(update={**told, "answers": tuple(answers)})


async def _answer(prometheus: PrometheusReader, question: EvidenceQuery) -> QueryResult:
    try:
        samples = await prometheus.ask(question.query)
        if samples:
            return QueryResult(question=question, samples=samples)
        any_series = {name: f'count({{__name__="{name}"}})' for name in metrics_of(question.query)}
        unknown = [name for name, query in any_series.items() if not await prometheus.ask(query)]
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
