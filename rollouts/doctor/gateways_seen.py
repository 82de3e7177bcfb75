"""The gateways that a delivery's routes name, and the pods that carry their traffic."""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.doctor.admission import Caller
from rollouts.doctor.model import Gateway
from rollouts.doctor.objects import at, labels_of
from rollouts.doctor.ports import Region
from rollouts.errors import Forbidden, NotFound
from rollouts.kube.model import EVERYWHERE, Json
from rollouts.kube.resources import NAMESPACES, PODS
from rollouts.manifests.traffic_spec import PROXIES_IN

_OWNED_NAME = "gateway.envoyproxy.io/owning-gateway-name"
_OWNED_IN = "gateway.envoyproxy.io/owning-gateway-namespace"
"""Envoy Gateway puts both on its proxies, which run in its own namespace unless it was told otherwise."""

_SERVED = "gateway.networking.k8s.io/gateway-name"
"""Istio and others put it on proxies that run in the gateway's namespace (GEP-1762)."""


async def gateways_of(region: Region, routes: Iterable[Json]) -> tuple[Gateway, ...]:
    """Each parent of these HTTPRoutes with its proxies, as far as pods may be listed."""
    parents = {
        (str(at(parent, "namespace", default=at(route, "metadata", "namespace"))), str(parent["name"]))
        for route in routes
        for parent in at(route, "spec", "parentRefs", default=[])
        if parent.get("kind", "Gateway") == "Gateway"
    }
    return tuple([await _gateway(region, namespace, name) for namespace, name in sorted(parents)])


async def _gateway(region: Region, namespace: str, name: str) -> Gateway:
    places = (EVERYWHERE, namespace, *PROXIES_IN)
    listed: list[Json] | None = None
    for place in dict.fromkeys(places):
        try:
            found = [one for label in (_OWNED_NAME, _SERVED) for one in await _pods(region, f"{label}={name}", place)]
        except Forbidden:
            continue
        listed = [*(listed or []), *found]
        if place == EVERYWHERE:
            break
    if listed is None:
        return Gateway(name=name, namespace=namespace, readable=False)
    own = {at(pod, "metadata", "uid"): pod for pod in listed if _carries(pod, namespace)}
    return Gateway(name=name, namespace=namespace, proxies=await _callers(region, own.values()))


async def _pods(region: Region, labels: str, namespace: str) -> tuple[Json, ...]:
    return (await region.list(PODS, labels=labels, namespace=namespace)).items


def _carries(pod: Json, namespace: str) -> bool:
    """Whether it belongs to the gateway of that namespace; two of one name may be in one cluster.

    What the policies of a pod in its node's own network see depends on the network.
    """
    place = labels_of(pod).get(_OWNED_IN, at(pod, "metadata", "namespace"))
    return place == namespace and not at(pod, "spec", "hostNetwork", default=False)


async def _callers(region: Region, pods: Iterable[Json]) -> tuple[Caller, ...]:
    known: dict[str, Json | None] = {}
    for place in {str(at(pod, "metadata", "namespace")) for pod in pods}:
        try:
            known[place] = await region.get(NAMESPACES, place)
        except (Forbidden, NotFound):
            known[place] = None
    told = {place: None if body is None else labels_of(body) for place, body in known.items()}
    return tuple(Caller(pod=pod, namespace_labels=told[str(at(pod, "metadata", "namespace"))]) for pod in pods)
