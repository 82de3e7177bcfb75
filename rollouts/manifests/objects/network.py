"""How requests reach engines: two Services, an HTTPRoute or Istio's VirtualService, and who may talk to engines at all.

Users reach vLLM's API below `/v1` and nothing else of an engine: neither its metrics and status, nor the routes that
end requests or change how it runs. Those who may ask one arm alone do so at a gateway or listener of their own.

The weights are where a trial begins; from then on they are Argo Rollouts' to set. Mirroring is no part of these
objects: the one who mirrors adds it to the rule called `USERS`, and `ownership` keeps it when they are applied again.
"""

from __future__ import annotations

from datetime import timedelta

from rollouts.kube.model import NAME_OF_NAMESPACE
from rollouts.kube.resources import HTTP_ROUTES, NETWORK_POLICIES, SERVICES, VIRTUAL_SERVICES
from rollouts.manifests.conventions import PORT_NAME, SERVICE_PORT, USERS, TrafficRouter, canary_service, stable_service
from rollouts.manifests.fields import host_in
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.nodes_spec import asks_for_notice
from rollouts.manifests.spec import InsideSpec, NetworkSpec
from tidegate.core.model import Json, Value

API = "/v1"
"""Of vLLM: what users ask. As a prefix it means whole parts of a path."""
TOKENIZE = "/tokenize"
"""What smoke asks next to it, of one arm alone."""


def routes(site: Site) -> tuple[Json, ...]:
    """Of users, and of those who ask one arm alone where there is a place for that."""
    users = _route(site, site.route_name, _entrance(site), _hosts(site), _shares(site))
    inside = site.fleet.gateway.direct
    return (users, *_direct(site, inside)) if inside else (users,)


class _Entrance(Value):
    """Where a route begins, and what is let in there."""

    gateway: str
    namespace: str | None
    listener: str | None
    more: tuple[str, ...] = ()
    """Paths besides the API's."""


def _entrance(site: Site) -> _Entrance:
    gateway = site.fleet.gateway
    return _Entrance(gateway=gateway.name, namespace=gateway.namespace, listener=gateway.listener)


def _inside(site: Site, inside: InsideSpec) -> _Entrance:
    gateway = site.fleet.gateway
    return _Entrance(
        gateway=inside.name or gateway.name,
        namespace=inside.namespace or gateway.namespace,
        listener=inside.listener,
        more=(TOKENIZE,),
    )


def _hosts(site: Site) -> tuple[str, ...]:
    """Without the one of the region's own address, users of the region would meet a gateway that knows no such host."""
    own = host_in(site.fleet.regions[site.release.region].entry)
    return tuple(dict.fromkeys((*site.fleet.gateway.hosts, *((own,) if own else ()))))


def _shares(site: Site) -> dict[str, int]:
    """Percent for each Service."""
    return {stable_service(site.name): 100, canary_service(site.name): 0}


def _direct(site: Site, inside: InsideSpec) -> tuple[Json, ...]:
    """Routes past all weights. They are nobody's to change, so no promotion or abort takes them away."""
    region = site.fleet.regions[site.release.region]
    asked = {stable_service(site.name): region.stable_url, canary_service(site.name): region.canary_url}
    entrance = _inside(site, inside)
    return tuple(_route(site, name, entrance, (host_in(url),), {name: 100}) for name, url in asked.items())


def _route(site: Site, name: str, entrance: _Entrance, hosts: tuple[str, ...], shares: dict[str, int]) -> Json:
    if site.fleet.traffic is TrafficRouter.ISTIO:
        return manifest(VIRTUAL_SERVICES, name, site, spec=_virtual_service(site, entrance, hosts, shares))
    return manifest(HTTP_ROUTES, name, site, spec=_http_route(site, entrance, hosts, shares))


def _http_route(site: Site, entrance: _Entrance, hosts: tuple[str, ...], shares: dict[str, int]) -> Json:
    parent: Json = {"name": entrance.gateway}
    if entrance.namespace:
        parent["namespace"] = entrance.namespace
    if entrance.listener:
        parent["sectionName"] = entrance.listener
    exactly = [{"path": {"type": "Exact", "value": path}} for path in entrance.more]
    rule: Json = {
        "matches": [{"path": {"type": "PathPrefix", "value": API}}, *exactly],
        "timeouts": {"request": _whole(site.fleet.gateway.timeout)},
        "backendRefs": [{"name": name, "port": SERVICE_PORT, "weight": weight} for name, weight in shares.items()],
    }
    return {"parentRefs": [parent], "hostnames": list(hosts), "rules": [rule]}


def _virtual_service(site: Site, entrance: _Entrance, hosts: tuple[str, ...], shares: dict[str, int]) -> Json:
    exactly = [{"uri": {"exact": path}} for path in entrance.more]
    rule: Json = {
        "name": USERS,
        # Istio's prefix is one of letters: without the slash it would let in `/v1x` too.
        "match": [{"uri": {"prefix": f"{API}/"}}, *exactly],
        "timeout": _whole(site.fleet.gateway.timeout),
        "route": [
            {"destination": {"host": name, "port": {"number": SERVICE_PORT}}, "weight": weight}
            for name, weight in shares.items()
        ],
    }
    named = f"{entrance.namespace or site.fleet.namespace}/{entrance.gateway}"
    return {"hosts": list(hosts), "gateways": [named], "http": [rule]}


def _whole(length: timedelta) -> str:
    """In whole seconds: neither reads all of the other's durations."""
    return f"{max(1, round(length.total_seconds()))}s"


def services(site: Site) -> tuple[Json, ...]:
    """Stable and canary. Each selector is narrowed to one version's pods, by Argo Rollouts or by the fleet; until then
    both have all.
    """
    return tuple(_service(site, name) for name in (stable_service(site.name), canary_service(site.name)))


def _service(site: Site, name: str) -> Json:
    port = {"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": PORT_NAME}
    return manifest(SERVICES, name, site, spec={"selector": dict(site.selector), "ports": [port]})


METADATA_SERVERS = {"0.0.0.0/0": "169.254.169.254/32", "::/0": "fd00:ec2::254/128"}
"""Where clouds hand out a node's credentials, among all addresses of IPv4 and IPv6. No more than these: a cluster's
own DNS may be at a link-local address."""

_METADATA_SERVER = "169.254.169.254/32"
"""Where AWS and Google Cloud announce that they take a spot node back."""
_METADATA_PORT = 80


def network_policy(site: Site, wanted: NetworkSpec) -> Json:
    """Requests from the gateway's proxies and from Prometheus; out to names, and to what the spec allows."""
    gateway = site.fleet.gateway
    itself = gateway.namespace or site.fleet.namespace
    inside = (gateway.direct.namespace,) if gateway.direct and gateway.direct.namespace else ()
    sources = dict.fromkeys((itself, *inside, *gateway.pods_in, *wanted.ingress_from))
    spec: Json = {
        "podSelector": {"matchLabels": dict(site.selector)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": [_namespace(name) for name in sources], "ports": [{"port": PORT_NAME, "protocol": "TCP"}]},
        ],
        "egress": _egress(site, wanted),
    }
    return manifest(NETWORK_POLICIES, site.name, site, spec=spec)


def _egress(site: Site, wanted: NetworkSpec) -> list[Json]:
    names: Json = {
        "to": [_namespace("kube-system")],
        "ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")],
    }
    # A pod that reaches it reads the node's own credentials too, unless the instance answers no pod (see the docs).
    notice: Json = {
        "to": [{"ipBlock": {"cidr": _METADATA_SERVER}}],
        "ports": [{"port": _METADATA_PORT, "protocol": "TCP"}],
    }
    blocks = [{"ipBlock": {"cidr": block}} for block in wanted.egress_to]
    return [names, *([notice] if asks_for_notice(site.fleet.nodes) else []), *([{"to": blocks}] if blocks else [])]


def _namespace(name: str) -> Json:
    return {"namespaceSelector": {"matchLabels": {NAME_OF_NAMESPACE: name}}}
