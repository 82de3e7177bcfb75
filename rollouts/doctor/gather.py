"""The snapshot of a region, read through the API server and its Prometheus. Reads only; changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from rollouts.cluster.ownership import foreign_objects
from rollouts.doctor.model import (
    AccessResult,
    Gateway,
    PrometheusProblem,
    PrometheusTrouble,
    Reading,
    Snapshot,
    Unread,
)
from rollouts.doctor.ports import PrometheusReader, RegionReader
from rollouts.doctor.queries import EvidenceQuery, QueryResult, ScrapeInterval, metrics_of
from rollouts.doctor.sources import controller_of, gateways_of
from rollouts.doctor.strategy import http_routes, route_namespace, services, template_names, virtual_services
from rollouts.doctor.strategy import template_queries as of_templates
from rollouts.errors import (
    Forbidden,
    NotFound,
    PrometheusCertificateUntrusted,
    PrometheusCredentialMissing,
    PrometheusCredentialRefused,
    QueryRefused,
    Unreachable,
)
from rollouts.kube.model import EVERYWHERE, AccessReview, Resource
from rollouts.kube.objects import at
from rollouts.kube.ports import find
from rollouts.kube.resources import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    CLUSTER_ANALYSIS_TEMPLATES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    EXPERIMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    HTTP_ROUTES,
    NETWORK_POLICIES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_MONITORS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLLOUTS,
    SCALED_OBJECTS,
    SERVICES,
    VIRTUAL_SERVICES,
)
from rollouts.manifests.conventions import guard
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.access import cluster_rights, rights
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import ForeignObject
from tidegate.core.clock import Clock
from tidegate.core.model import Json, Value

CONTROLLER_NAMESPACE = "argo-rollouts"
"""Where the manifests and the Helm chart of Argo Rollouts put it."""

WORKFLOWS_NAMESPACE, WORKFLOWS_CONFIG = "argo", "workflow-controller-configmap"
"""Where the manifests of Argo Workflows put its controller, and what configures it."""

HELD_BY = (ADMISSION_POLICIES, ADMISSION_BINDINGS)
"""What holds tidegate to its own objects."""

DEFINITIONS = (ROLLOUTS, ANALYSIS_RUNS, ANALYSIS_TEMPLATES, EXPERIMENTS, HTTP_ROUTES, VIRTUAL_SERVICES)
"""Kinds whose definitions are asked for by name where they may not be listed."""


class DiagnosisTarget(Value):
    """The region and the delivery to diagnose, with what the spec says of them."""

    region: str
    delivery: str
    controller_namespace: str = CONTROLLER_NAMESPACE
    questions: tuple[EvidenceQuery, ...] = ()
    """What gates and SLOs ask Prometheus in this region."""
    scraping: ScrapeInterval | None = None
    """How often engines should be scraped."""
    tenant: str = ""
    """Whose series Prometheus is asked for; empty where it has those of one."""
    rights: tuple[AccessReview, ...] = ()
    """What a delivery has to do here."""
    workflows_in: tuple[str, ...] = ()
    """Namespaces in which Argo Workflows' controller may be, where workflows carry deliveries."""
    guard: str = ""
    """The image of the region's guard, by digest; empty where the spec asks for none."""
    objects: tuple[Json, ...] = ()
    """What a delivery and its set-up bring here, as rendered; their names are what counts."""
    last_delivery: datetime | None = None


async def gather(
    region: RegionReader, prometheus: PrometheusReader | None, target: DiagnosisTarget, clock: Clock
) -> Snapshot:
    """One moment of the region.

    What may not be read is left out and marked so.

    Raises:
        FleetError: when the API server does not answer or does not know us.
    """
    rollout = await find(region, ROLLOUTS, target.delivery)
    held = tuple(each for each in target.objects if each["kind"] in {kind.kind for kind in HELD_BY})
    names = _named_in(rollout, target.delivery) | _named_among(target.objects)
    resources = list(names)
    places = {HTTP_ROUTES: route_namespace(rollout or {})}
    readings = await asyncio.gather(
        *(_read(region, resource, names[resource], places.get(resource)) for resource in resources)
    )
    read = dict(zip(resources, readings, strict=True))
    workflows, workflows_unread = await _workflows(region, target.workflows_in)
    seen = Snapshot(
        region=target.region,
        delivery=target.delivery,
        namespace=region.namespace,
        now=clock.now() + (region.ahead or timedelta()),
        objects=read,
        controller=await controller_of(region, target.controller_namespace, target.delivery),
        gateways=await _gateways(region, read, rollout or {}),
        access=tuple([AccessResult(question=right, allowed=await region.allowed(right)) for right in target.rights]),
        admission=held,
        monitors=names.get(POD_MONITORS, ()),
        workflows_config=workflows,
        workflows_unread=workflows_unread,
        foreign_objects=await _foreign_objects(region, target),
        guard=target.guard,
        skew=region.ahead,
        last_delivery=target.last_delivery,
    )
    return seen if prometheus is None else await _with_answers(seen, prometheus, target)


def _named_in(rollout: Json | None, delivery: str) -> dict[Resource, tuple[str, ...]]:
    """What is read of the region, with the names that matter where a kind may not be listed."""
    told = rollout or {}
    borrowed = at(told, "spec", "workloadRef", "name")
    plural = tuple(f"{resource.plural}.{resource.group}" for resource in DEFINITIONS)
    return {
        CUSTOM_RESOURCE_DEFINITIONS: plural,
        ROLLOUTS: (delivery,),
        REPLICA_SETS: (),
        PODS: (),
        SERVICES: tuple(services(told).values()),
        HTTP_ROUTES: tuple(http_routes(told)),
        VIRTUAL_SERVICES: tuple(virtual_services(told)),
        DEPLOYMENTS: (guard(delivery), *((borrowed,) if borrowed else ())),
        ANALYSIS_TEMPLATES: template_names(told, cluster=False),
        CLUSTER_ANALYSIS_TEMPLATES: template_names(told, cluster=True),
        ANALYSIS_RUNS: (),
        EVENTS: (),
        RESOURCE_QUOTAS: (),
        NETWORK_POLICIES: (),
        POD_DISRUPTION_BUDGETS: (delivery,),
        HORIZONTAL_POD_AUTOSCALERS: (delivery, f"keda-hpa-{delivery}"),
        SCALED_OBJECTS: (delivery,),
        NODES: (),
    }


def _named_among(objects: Sequence[Json]) -> dict[Resource, tuple[str, ...]]:
    kinds = (*HELD_BY, POD_MONITORS)
    return {kind: tuple(each["metadata"]["name"] for each in objects if each["kind"] == kind.kind) for kind in kinds}


async def _workflows(region: RegionReader, namespaces: Iterable[str]) -> tuple[Json | None, bool]:
    """The configuration of Argo Workflows' controller, and whether it may not be read."""
    unread = False
    for namespace in namespaces:
        try:
            return await region.get(CONFIG_MAPS, WORKFLOWS_CONFIG, namespace=namespace), False
        except NotFound:
            continue
        except Forbidden:
            unread = True
    return None, unread


async def _read(region: RegionReader, resource: Resource, names: Iterable[str], namespace: str | None) -> Reading:
    """All of a kind; where it may not be listed, those of these names."""
    try:
        return Reading(items=(await region.list(resource, namespace=namespace)).items)
    except NotFound:
        return Reading(unread=Unread.ABSENT)
    except Forbidden:
        pass
    wanted = tuple(names)
    try:
        found = [await find(region, resource, name, namespace=namespace) for name in wanted]
    except Forbidden:
        found = []
        wanted = ()
    items = tuple(item for item in found if item is not None)
    return Reading(items=items, unread=None if wanted else Unread.FORBIDDEN)


async def _foreign_objects(region: RegionReader, target: DiagnosisTarget) -> tuple[ForeignObject, ...]:
    found: list[ForeignObject] = []
    for wanted in target.objects:
        try:
            found += await foreign_objects(region, (wanted,), target.delivery)
        except Forbidden:
            continue
    return tuple(found)


async def _gateways(region: RegionReader, read: Mapping[Resource, Reading], rollout: Json) -> tuple[Gateway, ...]:
    """Those that may be asked for by users of this Rollout, where a policy may keep them out."""
    if not read[NETWORK_POLICIES].items:
        return ()
    named = http_routes(rollout)
    return await gateways_of(region, [one for one in read[HTTP_ROUTES].items if one["metadata"]["name"] in named])


async def _with_answers(seen: Snapshot, prometheus: PrometheusReader, target: DiagnosisTarget) -> Snapshot:
    """The snapshot with what Prometheus says to the gates, and to the analysis templates in use."""
    answers: list[QueryResult] = []
    told: dict[str, object] = {"scraping": target.scraping}
    try:
        for question in (*target.questions, *of_templates(seen)):
            answers.append(await _answer(prometheus, question))
        if target.scraping:
            told["scraped_every"] = target.scraping.seen(await _samples(prometheus, target.scraping.query))
        if target.tenant and not any(answer.samples for answer in answers) and not await _samples(prometheus, ANYTHING):
            told["empty_tenant"] = target.tenant
    except Unreachable as error:
        told["prometheus_problem"] = _problem(error)
    return seen.model_copy(update={**told, "answers": tuple(answers)})


_TROUBLES: Mapping[type[Unreachable], PrometheusTrouble] = {
    PrometheusCredentialMissing: PrometheusTrouble.CREDENTIAL_MISSING,
    PrometheusCredentialRefused: PrometheusTrouble.CREDENTIAL_REFUSED,
    PrometheusCertificateUntrusted: PrometheusTrouble.CERTIFICATE_UNTRUSTED,
}


def _problem(error: Unreachable) -> PrometheusProblem:
    trouble = _TROUBLES.get(type(error), PrometheusTrouble.AWAY)
    refused = trouble is PrometheusTrouble.CREDENTIAL_REFUSED
    return PrometheusProblem(trouble=trouble, told=str(error), its_words=error.detail or "" if refused else "")


ANYTHING = "count(up)"
"""What every Prometheus that scrapes anything has."""


async def _samples(prometheus: PrometheusReader, query: str) -> tuple[float, ...]:
    """None of a query that this Prometheus cannot evaluate: some that speak its language have no subqueries."""
    try:
        return await prometheus.ask(query)
    except QueryRefused:
        return ()


async def _answer(prometheus: PrometheusReader, question: EvidenceQuery) -> QueryResult:
    try:
        samples = await prometheus.ask(question.query)
        if samples:
            return QueryResult(question=question, samples=samples)
        unknown = [name for name in metrics_of(question.query) if not await prometheus.ask(_any_of(name))]
        return QueryResult(question=question, unknown=tuple(unknown))
    except QueryRefused as error:
        return QueryResult(question=question, refused=error.message)


def _any_of(metric: str) -> str:
    """Whether there is any series of that name, of anybody."""
    return f'count({{__name__="{metric}"}})'


def required_access(
    fleet: ArgoFleetSpec, delivery: str, region: str, guard: str = "", *, samples: bool = False
) -> tuple[AccessReview, ...]:
    """Every right that `tidegate rollout render` gives a delivery in a region, one question for each verb and name."""
    # Which engine it is changes no right.
    release = Release(delivery=delivery, region=region, version="0", digest="", image="")
    site = Site(fleet=fleet, release=release, guard=guard, samples=samples)
    inside = [question for right in rights(site) for question in right.questions()]
    outside = [question for right in cluster_rights(site) for question in right.questions(EVERYWHERE)]
    return tuple(dict.fromkeys([*inside, *outside]))
