"""The snapshot of a region, read through the API server and its Prometheus. Reads only; changes nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from datetime import timedelta

from rollouts.cluster.region import foreign_objects
from rollouts.doctor.model import Controller, DiagnosisTarget, Snapshot, Unread
from rollouts.doctor.queries import EvidenceQuery, PrometheusReader, QueryResult, metrics_of
from rollouts.doctor.strategy import ARGO_ROLLOUTS, http_routes, route_namespace, services, virtual_services
from rollouts.errors import (
    ApiError,
    Forbidden,
    NotFound,
)
from rollouts.kube.client import KubeClient
from rollouts.kube.model import EVERYWHERE, AccessReview, Resource
from rollouts.kube.objects import at, container_states, labels_of, name_of
from rollouts.kube.resources import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    HTTP_ROUTES,
    LEASES,
    POD_MONITORS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLLOUTS,
    SERVICES,
    VIRTUAL_SERVICES,
)
from rollouts.manifests.conventions import guard
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
    rollout = await region.find(ROLLOUTS, target.delivery) or {}
    names = _names(rollout, target)
    places = {HTTP_ROUTES: route_namespace(rollout)}
    readings = await asyncio.gather(*(_read(region, kind, names[kind], places.get(kind)) for kind in names))
    seen = Snapshot(
        target=target,
        namespace=region.namespace,
        now=clock.now() + (region.ahead or timedelta()),
        objects=dict(zip(names, readings, strict=True)),
        controller=await _controller(region, target.controller_namespace, target.delivery),
        denied=tuple([right for right in target.rights if not await region.allowed(right)]),
        foreign_objects=await _foreign_objects(region, target),
        skew=region.ahead,
    )
    return seen if prometheus is None else await _with_answers(seen, prometheus, target)


_DEFINED = (*ARGO_ROLLOUTS, HTTP_ROUTES, VIRTUAL_SERVICES)


def _names(rollout: Json, target: DiagnosisTarget) -> dict[Resource, tuple[str, ...]]:
    """What is read of the region, with the names that matter where a kind may not be listed."""
    borrowed = at(rollout, "spec", "workloadRef", "name")
    rendered = (ADMISSION_POLICIES, ADMISSION_BINDINGS, POD_MONITORS)
    named = {
        CUSTOM_RESOURCE_DEFINITIONS: tuple(f"{kind.plural}.{kind.group}" for kind in _DEFINED),
        ROLLOUTS: (target.delivery,),
        SERVICES: tuple(services(rollout).values()),
        HTTP_ROUTES: tuple(http_routes(rollout)),
        VIRTUAL_SERVICES: tuple(virtual_services(rollout)),
        DEPLOYMENTS: (guard(target.delivery), *((borrowed,) if borrowed else ())),
        **{kind: tuple(name_of(each) for each in target.rendered(kind)) for kind in rendered},
    }
    listed = dict.fromkeys((REPLICA_SETS, PODS, EVENTS, RESOURCE_QUOTAS), ())
    return {kind: names for kind, names in named.items() if names} | listed


async def _read(
    region: KubeClient, resource: Resource, names: tuple[str, ...], namespace: str | None
) -> tuple[Json, ...] | Unread:
    """All of a kind; where it may not be listed, those of these names."""
    try:
        return (await region.list(resource, namespace=namespace)).items
    except NotFound:
        return Unread.ABSENT
    except Forbidden:
        pass
    try:
        found = [await region.find(resource, name, namespace=namespace) for name in names]
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


_CONFIG, _LEASE = "argo-rollouts-config", "argo-rollouts-controller-lock"
"""The controller's own names for them; neither can be changed by a flag."""
_LABEL = "app.kubernetes.io/name=argo-rollouts"
_COMPONENT = "app.kubernetes.io/component"


async def _controller(region: KubeClient, namespace: str, rollout: str) -> Controller:
    """Pods, lease, configuration and the end of the log, each as far as it may be read."""
    pods = await _labelled(region, PODS, namespace)
    if pods is None:
        return Controller(namespace=namespace, readable=False)
    config, config_unread = await _one(region, CONFIG_MAPS, _CONFIG, namespace)
    lease, _ = await _one(region, LEASES, _LEASE, namespace)
    return Controller(
        namespace=namespace,
        deployments=await _labelled(region, DEPLOYMENTS, namespace) or (),
        pods=pods,
        lease=lease,
        config=config,
        config_unread=config_unread,
        log=await _log(region, namespace, pods, rollout),
    )


async def _labelled(region: KubeClient, resource: Resource, namespace: str) -> tuple[Json, ...] | None:
    """Those of the controller, and not of the dashboard, which the Helm chart gives the same name."""
    try:
        found = (await region.list(resource, labels=_LABEL, namespace=namespace)).items
    except (Forbidden, NotFound):
        return None
    return tuple(one for one in found if labels_of(one).get(_COMPONENT) != "rollouts-dashboard")


async def _one(region: KubeClient, resource: Resource, name: str, namespace: str) -> tuple[Json | None, bool]:
    """The object, and whether it may not be read; one that is not there is an answer."""
    try:
        return await region.find(resource, name, namespace=namespace), False
    except Forbidden:
        return None, True


_LOG = "/api/v1/namespaces/{namespace}/pods/{pod}/log?tailLines=500{which}"
_TROUBLE = re.compile(r"level=(error|fatal)|panic:|fatal", re.IGNORECASE)
LOG_SECONDS = 1800
"""The controller tries again every 1000 s at the latest; what is older may have been corrected."""
LOG_LINES = 3
"""Enough to name a cause; the whole log is a kubectl away."""


async def _log(region: KubeClient, namespace: str, pods: Iterable[Json], rollout: str) -> tuple[str, ...]:
    """The last lines about trouble with this Rollout or with a plugin; of the run before, where one crashed."""
    lines: list[str] = []
    for pod in pods:
        waits = any("waiting" in (state.get("state") or {}) for state in container_states(pod))
        which = "&previous=true" if waits else f"&sinceSeconds={LOG_SECONDS}"
        try:
            text = await region.text(_LOG.format(namespace=namespace, pod=name_of(pod), which=which))
        except ApiError:
            continue
        lines += [line for line in text.splitlines() if _TROUBLE.search(line) and (rollout in line or "plugin" in line)]
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
