"""Reads what serves a model in one namespace of a cluster. Reads only; changes nothing, and reads no Secret."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from rollouts.errors import Forbidden, NotFound
from rollouts.kube.model import EVERYWHERE, Resource
from rollouts.kube.objects import at, labels_of, matches, name_of, said
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import (
    ANALYSIS_TEMPLATES,
    DEPLOYMENTS,
    GATEWAYS,
    HORIZONTAL_POD_AUTOSCALERS,
    HTTP_ROUTES,
    INGRESSES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_MONITORS,
    PODS,
    ROLLOUTS,
    SCALED_OBJECTS,
    SERVICE_ACCOUNTS,
    SERVICE_MONITORS,
    SERVICES,
    VIRTUAL_SERVICES,
)
from rollouts.manifests.ownership import owner_of
from rollouts.survey.model import ServingSurvey
from rollouts.survey.objects import Objects
from rollouts.survey.pods import pod_facts
from rollouts.survey.traffic import traffic_facts
from rollouts.survey.workload import budget, monitors, prometheus_places, replicas, scaler, selectors, strategy_facts
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

_NAMESPACED = (
    *(ROLLOUTS, PODS, SERVICES, INGRESSES, SERVICE_ACCOUNTS, POD_DISRUPTION_BUDGETS),
    *(HORIZONTAL_POD_AUTOSCALERS, SCALED_OBJECTS, ANALYSIS_TEMPLATES),
)
"""Kinds that stand next to a workload."""
_ELSEWHERE_TOO = (HTTP_ROUTES, VIRTUAL_SERVICES, POD_MONITORS, SERVICE_MONITORS)
"""Kinds that lead here from other namespaces as well."""
_BROUGHT = (
    *(ROLLOUTS, SERVICES, HTTP_ROUTES, VIRTUAL_SERVICES, SERVICE_ACCOUNTS, POD_DISRUPTION_BUDGETS),
    *(HORIZONTAL_POD_AUTOSCALERS, SCALED_OBJECTS, POD_MONITORS),
)
"""Kinds of objects that a delivery brings under names of its own."""


async def survey(
    cluster: ClusterReader, name: str, *, context: str, namespace: str, container: str = ""
) -> ServingSurvey:
    """What a Rollout serves with.

    Args:
        cluster: read only.
        name: of the Rollout.
        context: as it was opened, for the survey.
        namespace: of the Rollout.
        container: the one that answers users; told from what they run when empty.

    Raises:
        UsageError: there is no such Rollout or container, or it is tidegate's own.
        FleetError: the API server does not answer, or does not let us see the Rollout.
    """
    body = await _rollout(cluster, name, namespace)
    objects = await _around(cluster, namespace)
    template, selector = await _template(cluster, body)
    pods = [pod for pod in objects.all(PODS) if selector and matches(selector, labels_of(pod))]
    node = await _node(cluster, objects, pods)
    found = traffic_facts(objects, body, template, namespace)
    relied_on = selectors(objects, body, template)
    return ServingSurvey(
        context=context,
        namespace=namespace,
        name=name,
        owner=owner_of(body),
        replicas=replicas(body),
        unavailable=budget(objects, template),
        pod=pod_facts(template, pods, node, container=container, relied_on=relied_on),
        strategy=strategy_facts(body),
        traffic=found,
        scaler=scaler(objects, body),
        monitors=monitors(objects, template, [each.name for each in found.services]),
        prometheus=prometheus_places(objects, body),
        taken=frozenset(
            said(each) for resource in _BROUGHT for each in objects.all(resource) if _is_in(each, namespace)
        ),
        unread=tuple(objects.unread),
    )


def _is_in(body: Json, namespace: str) -> bool:
    return str(at(body, "metadata", "namespace", default=namespace)) == namespace


async def _rollout(cluster: ClusterReader, name: str, namespace: str) -> Json:
    try:
        body = await cluster.get(ROLLOUTS, name, namespace=namespace)
    except NotFound:
        raise UsageError(
            f"there is no Rollout {name} in {namespace}", hint=await _instead(cluster, namespace)
        ) from None
    if DELIVERY in labels_of(body):
        raise UsageError(
            f"Rollout {name} is tidegate's own already, of delivery {labels_of(body)[DELIVERY]}",
            hint="`tidegate status` says what it serves",
        )
    return body


async def _instead(cluster: ClusterReader, namespace: str) -> str:
    with suppress(NotFound, Forbidden):
        if known := [name_of(one) for one in (await cluster.list(ROLLOUTS, namespace=namespace)).items]:
            return f"there are {', '.join(known[:20])}"
    return "is it in another namespace? name it with --namespace"


async def _around(cluster: ClusterReader, namespace: str) -> Objects:
    objects = Objects()
    places = {
        **dict.fromkeys(_NAMESPACED, (namespace,)),
        **dict.fromkeys(_ELSEWHERE_TOO, (EVERYWHERE, namespace)),
    }
    await asyncio.gather(*(_list(cluster, objects, each, where) for each, where in places.items()))
    await _gateways(cluster, objects, namespace)
    return objects


async def _list(cluster: ClusterReader, objects: Objects, resource: Resource, places: tuple[str, ...]) -> None:
    """All of a kind from the first place that may be read; a kind that is not installed has none."""
    for place in places:
        try:
            objects.add(resource, (await cluster.list(resource, namespace=place)).items)
        except Forbidden:
            continue
        except NotFound:
            pass
        return
    objects.unread.append(f"{resource.plural} in {places[-1]} (not allowed)")


async def _gateways(cluster: ClusterReader, objects: Objects, namespace: str) -> None:
    """Those that routes name: their listeners say under which scheme and port users ask."""
    named = {
        (str(at(parent, "namespace", default=at(route, "metadata", "namespace", default=namespace))), parent["name"])
        for route in objects.all(HTTP_ROUTES)
        for parent in at(route, "spec", "parentRefs", default=[])
        if parent.get("kind", "Gateway") == "Gateway" and parent.get("name")
    }
    for place, name in sorted(named):
        try:
            objects.add(GATEWAYS, [await cluster.get(GATEWAYS, name, namespace=place)])
        except Forbidden:
            objects.unread.append(f"gateway {name} in {place} (not allowed)")
        except NotFound:
            continue


async def _template(cluster: ClusterReader, body: Json) -> tuple[Json, Json]:
    """Its pod template and its selector, also those that a Rollout borrows."""
    found: Json | None = at(body, "spec", "template")
    if found is not None:
        return found, at(body, "spec", "selector", default={})
    reference = at(body, "spec", "workloadRef", default={})
    if reference.get("kind") != DEPLOYMENTS.kind or not reference.get("name"):
        raise UsageError(
            f"Rollout {name_of(body)} borrows the pods of a {reference.get('kind')}, not of a Deployment",
            hint="move its template into the Rollout or a Deployment",
        )
    owned = await cluster.get(DEPLOYMENTS, str(reference["name"]), namespace=at(body, "metadata", "namespace"))
    return at(owned, "spec", "template", default={}), at(owned, "spec", "selector", default={})


async def _node(cluster: ClusterReader, objects: Objects, pods: list[Json]) -> Json:
    name = next((str(node) for pod in pods if (node := at(pod, "spec", "nodeName"))), "")
    if not name:
        return {}
    try:
        return await cluster.get(NODES, name)
    except Forbidden:
        objects.unread.append("nodes (not allowed)")
    except NotFound:
        pass
    return {}
