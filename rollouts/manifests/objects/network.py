"""How requests reach engines: two Services, an HTTPRoute or Istio's VirtualService, and who may talk to engines at all.

Users reach vLLM's API below `/v1` and nothing else of an engine: neither its metrics and status, nor the routes that
end requests or change how it runs.

The weights are where a trial begins; from then on they are Argo Rollouts' to set. Mirroring is no part of these
objects: the one who mirrors adds it to the rule called `USERS`, and `ownership` keeps it when they are applied again.
"""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.kube.resources import NAME_OF_NAMESPACE, NETWORK_POLICIES, SERVICES
from rollouts.manifests.conventions import PORT_NAME, SERVICE_PORT, canary_service, stable_service
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.pod_spec import host_in
from rollouts.manifests.routers import ROUTERS
from rollouts.manifests.spec import NetworkSpec
from tidegate.core.model import Json


def route(site: Site) -> Json:
    """Of users."""
    fleet, gateway = site.fleet, site.fleet.gateway
    # Without that of the region's own address, its users would meet a gateway that knows no such host.
    own = host_in(fleet.regions[site.release.region].entry)
    hosts = tuple(dict.fromkeys((*gateway.hosts, *((own,) if own else ()))))
    # In whole seconds: neither kind reads all of the other's durations.
    timeout = f"{max(1, round(gateway.timeout.total_seconds()))}s"
    shares = {stable_service(site.name): 100, canary_service(site.name): 0}
    said = {"name": gateway.name, "namespace": gateway.namespace, "sectionName": gateway.listener}
    parent = {key: value for key, value in said.items() if value}
    router = ROUTERS[fleet.traffic]
    spec = router.rendered(parent, site.namespace, hosts, timeout, shares)
    return manifest(router.resource, site.name, site, spec=spec)


def services(site: Site) -> Iterator[Json]:
    """Stable and canary. Each selector is narrowed to one version's pods, by Argo Rollouts or by the fleet; until then
    both have all.
    """
    port = {"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": PORT_NAME}
    for name in (stable_service(site.name), canary_service(site.name)):
        yield manifest(SERVICES, name, site, spec={"selector": dict(site.selector), "ports": [port]})


METADATA_SERVERS = {"0.0.0.0/0": "169.254.169.254/32", "::/0": "fd00:ec2::254/128"}
"""Where clouds hand out a node's credentials, among all addresses of IPv4 and IPv6. No more than these: a cluster's
own DNS may be at a link-local address."""

_NOTICE_SERVER, _NOTICE_PORT = "169.254.169.254/32", 80
"""Where AWS and Google Cloud announce that they take a spot node back."""


def network_policy(site: Site, wanted: NetworkSpec) -> Json:
    """Requests from the gateway's proxies and from Prometheus; out to names, and to what the spec allows."""
    gateway = site.fleet.gateway
    sources = dict.fromkeys((gateway.namespace or site.namespace, *gateway.pods_in, *wanted.ingress_from))
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    egress: list[Json] = [{"to": [_namespace("kube-system")], "ports": names}]
    if site.fleet.nodes.asks_for_notice:
        # A pod that reaches it reads the node's own credentials too, unless the instance answers no pod (see the docs).
        port = {"port": _NOTICE_PORT, "protocol": "TCP"}
        egress.append({"to": [{"ipBlock": {"cidr": _NOTICE_SERVER}}], "ports": [port]})
    if wanted.egress_to:
        egress.append({"to": [{"ipBlock": {"cidr": block}} for block in wanted.egress_to]})
    spec: Json = {
        "podSelector": {"matchLabels": dict(site.selector)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": [_namespace(name) for name in sources], "ports": [{"port": PORT_NAME, "protocol": "TCP"}]}
        ],
        "egress": egress,
    }
    return manifest(NETWORK_POLICIES, site.name, site, spec=spec)


def _namespace(name: str) -> Json:
    return {"namespaceSelector": {"matchLabels": {NAME_OF_NAMESPACE: name}}}
