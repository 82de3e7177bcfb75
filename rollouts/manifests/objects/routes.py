"""Which of the two Services a region's users reach: an HTTPRoute, or Istio's VirtualService.

The weights are where a trial begins; from then on they are Argo Rollouts' to set. A copy of requests is no part of
these objects: whoever mirrors adds it to the rule called `USERS`, and `living` keeps it when the object is said again.
"""

from __future__ import annotations

from datetime import timedelta

from rollouts.kube.model import Json
from rollouts.kube.resources import HTTP_ROUTES, VIRTUAL_SERVICES
from rollouts.manifests.conventions import SERVICE_PORT, USERS, canary_service, stable_service
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.spec import Strategy
from rollouts.manifests.traffic_spec import Traffic
from rollouts.manifests.written import host_in


def routes(site: Site) -> tuple[Json, ...]:
    """Of users, and of those who ask one arm alone where the gateway has hosts for that."""
    users = _route(site, site.name, _hosts(site), _shares(site))
    return (users, *_direct(site)) if site.fleet.gateway.direct else (users,)


def _hosts(site: Site) -> tuple[str, ...]:
    """Without the one of the region's own address, users of the region would meet a gateway that knows no such host."""
    own = host_in(site.fleet.regions[site.release.region].entry)
    return tuple(dict.fromkeys((*site.fleet.gateway.hosts, *((own,) if own else ()))))


def _shares(site: Site) -> dict[str, int]:
    """Percent for each Service. Blue-green moves users by the selector of one Service, not by weights."""
    if site.fleet.strategy is Strategy.BLUE_GREEN:
        return {stable_service(site.name): 100}
    return {stable_service(site.name): 100, canary_service(site.name): 0}


def _direct(site: Site) -> tuple[Json, ...]:
    """Routes past all weights. They are nobody's to change, so no promotion or abort takes them away."""
    region = site.fleet.regions[site.release.region]
    asked = {stable_service(site.name): region.stable_url, canary_service(site.name): region.canary_url}
    return tuple(_route(site, name, (host_in(url),), {name: 100}) for name, url in asked.items())


def _route(site: Site, name: str, hosts: tuple[str, ...], shares: dict[str, int]) -> Json:
    if site.fleet.traffic is Traffic.ISTIO:
        return manifest(VIRTUAL_SERVICES, name, site, spec=_virtual_service(site, hosts, shares))
    return manifest(HTTP_ROUTES, name, site, spec=_http_route(site, hosts, shares))


def _http_route(site: Site, hosts: tuple[str, ...], shares: dict[str, int]) -> Json:
    gateway = site.fleet.gateway
    parent: Json = {"name": gateway.name}
    if gateway.namespace:
        parent["namespace"] = gateway.namespace
    if gateway.listener:
        parent["sectionName"] = gateway.listener
    rule: Json = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "timeouts": {"request": _whole(gateway.timeout)},
        "backendRefs": [{"name": name, "port": SERVICE_PORT, "weight": weight} for name, weight in shares.items()],
    }
    return {"parentRefs": [parent], "hostnames": list(hosts), "rules": [rule]}


def _virtual_service(site: Site, hosts: tuple[str, ...], shares: dict[str, int]) -> Json:
    gateway = site.fleet.gateway
    rule: Json = {
        "name": USERS,
        "timeout": _whole(gateway.timeout),
        "route": [
            {"destination": {"host": name, "port": {"number": SERVICE_PORT}}, "weight": weight}
            for name, weight in shares.items()
        ],
    }
    named = f"{gateway.namespace or site.fleet.namespace}/{gateway.name}"
    return {"hosts": list(hosts), "gateways": [named], "http": [rule]}


def _whole(length: timedelta) -> str:
    """In whole seconds: neither reads all of the other's durations."""
    return f"{max(1, round(length.total_seconds()))}s"
