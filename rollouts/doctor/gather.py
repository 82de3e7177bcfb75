"""The snapshot of a region, read through the API server and its Prometheus. Reads only; changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from rollouts.cluster.claims import strangers
from rollouts.doctor.controller_seen import controller_of
from rollouts.doctor.errors import QueryRefused
from rollouts.doctor.gateways_seen import gateways_of
from rollouts.doctor.model import Access, Gateway, Reading, Snapshot, Unread
from rollouts.doctor.objects import at
from rollouts.doctor.ports import Prometheus, Region
from rollouts.doctor.questions import Answer, Question, metrics_of
from rollouts.doctor.scraping import Scraping
from rollouts.doctor.strategy import http_routes, route_namespace, services, virtual_services
from rollouts.doctor.templates import questions as of_templates
from rollouts.doctor.templates import template_names
from rollouts.errors import Forbidden, NotFound, Unreachable
from rollouts.kube.model import AccessQuestion, Json, Resource
from rollouts.kube.resources import (
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    CLUSTER_ANALYSIS_TEMPLATES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    EXPERIMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    HTTP_ROUTES,
    NETWORK_POLICIES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLLOUTS,
    SCALED_OBJECTS,
    SERVICES,
    VIRTUAL_SERVICES,
)
from rollouts.model import Stranger
from tidegate.core.clock import Clock
from tidegate.core.model import Value

CONTROLLER_NAMESPACE = "argo-rollouts"
"""Where the manifests and the Helm chart of Argo Rollouts put it."""

DEFINITIONS = (ROLLOUTS, ANALYSIS_RUNS, ANALYSIS_TEMPLATES, EXPERIMENTS, HTTP_ROUTES, VIRTUAL_SERVICES)
"""Kinds whose definitions are asked for by name where they may not be listed."""


class Patient(Value):
    """Whom to look at."""

    region: str
    delivery: str
    controller_namespace: str = CONTROLLER_NAMESPACE
    questions: tuple[Question, ...] = ()
    """What gates and SLOs ask Prometheus in this region."""
    scraping: Scraping | None = None
    """How often engines should be scraped."""
    rights: tuple[AccessQuestion, ...] = ()
    """What a delivery has to do here."""
    objects: tuple[Json, ...] = ()
    """What a delivery and its set-up bring here, as rendered; their names are what counts."""
    last_delivery: datetime | None = None


async def gather(region: Region, prometheus: Prometheus | None, patient: Patient, clock: Clock) -> Snapshot:
    """One moment of the region.

    What may not be read is left out and marked so.

    Raises:
        FleetError: when the API server does not answer or does not know us.
    """
    rollout = await _one(region, ROLLOUTS, patient.delivery)
    names = _named_in(rollout, patient.delivery)
    resources = list(names)
    places = {HTTP_ROUTES: route_namespace(rollout or {})}
    readings = await asyncio.gather(
        *(_read(region, resource, names[resource], places.get(resource)) for resource in resources)
    )
    read = dict(zip(resources, readings, strict=True))
    seen = Snapshot(
        region=patient.region,
        delivery=patient.delivery,
        namespace=region.namespace,
        now=clock.now() + (region.ahead or timedelta()),
        objects=read,
        controller=await controller_of(region, patient.controller_namespace, patient.delivery),
        gateways=await _gateways(region, read, rollout or {}),
        access=tuple([Access(question=right, allowed=await region.allowed(right)) for right in patient.rights]),
        strangers=await _strangers(region, patient),
        skew=region.ahead,
        last_delivery=patient.last_delivery,
    )
    return seen if prometheus is None else await _with_answers(seen, prometheus, patient)


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
        DEPLOYMENTS: (borrowed,) if borrowed else (),
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


async def _read(region: Region, resource: Resource, names: Iterable[str], namespace: str | None) -> Reading:
    """All of a kind; where it may not be listed, those of these names."""
    try:
        return Reading(items=(await region.list(resource, namespace=namespace)).items)
    except NotFound:
        return Reading(unread=Unread.ABSENT)
    except Forbidden:
        pass
    wanted = tuple(names)
    try:
        found = [await _one(region, resource, name, namespace) for name in wanted]
    except Forbidden:
        found = []
        wanted = ()
    items = tuple(item for item in found if item is not None)
    return Reading(items=items, unread=None if wanted else Unread.FORBIDDEN)


async def _one(region: Region, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
    try:
        return await region.get(resource, name, namespace=namespace)
    except NotFound:
        return None


async def _strangers(region: Region, patient: Patient) -> tuple[Stranger, ...]:
    found: list[Stranger] = []
    for wanted in patient.objects:
        try:
            found += await strangers(region, (wanted,), patient.delivery)
        except Forbidden:
            continue
    return tuple(found)


async def _gateways(region: Region, read: Mapping[Resource, Reading], rollout: Json) -> tuple[Gateway, ...]:
    """Those that may be asked for by users of this Rollout, where a policy may keep them out."""
    if not read[NETWORK_POLICIES].items:
        return ()
    named = http_routes(rollout)
    return await gateways_of(region, [one for one in read[HTTP_ROUTES].items if one["metadata"]["name"] in named])


async def _with_answers(seen: Snapshot, prometheus: Prometheus, patient: Patient) -> Snapshot:
    """The snapshot with what Prometheus says to the gates, and to the analysis templates in use."""
    answers: list[Answer] = []
    told: dict[str, object] = {"scraping": patient.scraping}
    try:
        for question in (*patient.questions, *of_templates(seen)):
            answers.append(await _answer(prometheus, question))
        if patient.scraping:
            told["scraped_every"] = patient.scraping.seen(await _samples(prometheus, patient.scraping.query))
    except Unreachable as error:
        told["prometheus_problem"] = str(error)
    return seen.model_copy(update={**told, "answers": tuple(answers)})


async def _samples(prometheus: Prometheus, query: str) -> tuple[float, ...]:
    """None of a query that this Prometheus cannot evaluate: some that speak its language have no subqueries."""
    try:
        return await prometheus.ask(query)
    except QueryRefused:
        return ()


async def _answer(prometheus: Prometheus, question: Question) -> Answer:
    try:
        samples = await prometheus.ask(question.query)
        if samples:
            return Answer(question=question, samples=samples)
        unknown = [name for name in metrics_of(question.query) if not await prometheus.ask(_any_of(name))]
        return Answer(question=question, unknown=tuple(unknown))
    except QueryRefused as error:
        return Answer(question=question, refused=error.message)


def _any_of(metric: str) -> str:
    """Whether there is any series of that name, of anybody."""
    return f'count({{__name__="{metric}"}})'
