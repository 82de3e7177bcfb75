"""What is not allowed to happen to engines: strangers' requests, all of them drained at once."""

from __future__ import annotations

from rollouts.kube.model import Json
from rollouts.kube.resources import NETWORK_POLICIES, POD_DISRUPTION_BUDGETS
from rollouts.manifests.conventions import PORT_NAME
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.nodes_spec import asks_for_notice

_NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"
"""A label that the API server itself puts on every namespace."""

_METADATA_SERVER = "169.254.169.254/32"
"""Where AWS and Google Cloud announce that they take a spot node back."""
_METADATA_PORT = 80


def disruption_budget(site: Site) -> Json:
    """How many engines, whatever their version, may be away because nodes are drained."""
    spec = {"maxUnavailable": site.fleet.unavailable, "selector": {"matchLabels": dict(site.selector)}}
    return manifest(POD_DISRUPTION_BUDGETS, site.name, site, spec=spec)


def network_policy(site: Site) -> Json:
    """Requests from the gateway's proxies and from Prometheus; out to names, and to what the spec allows."""
    gateway = site.fleet.gateway
    itself = gateway.namespace or site.fleet.namespace
    inside = (gateway.direct.namespace,) if gateway.direct and gateway.direct.namespace else ()
    sources = dict.fromkeys((itself, *inside, *gateway.pods_in, *site.fleet.network.ingress_from))
    spec: Json = {
        "podSelector": {"matchLabels": dict(site.selector)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": [_namespace(name) for name in sources], "ports": [{"port": PORT_NAME, "protocol": "TCP"}]}
        ],
        "egress": _egress(site),
    }
    return manifest(NETWORK_POLICIES, site.name, site, spec=spec)


def _egress(site: Site) -> list[Json]:
    names: Json = {
        "to": [_namespace("kube-system")],
        "ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")],
    }
    # A pod that reaches it reads the node's own credentials too, unless the instance answers no pod (see the docs).
    notice: Json = {
        "to": [{"ipBlock": {"cidr": _METADATA_SERVER}}],
        "ports": [{"port": _METADATA_PORT, "protocol": "TCP"}],
    }
    blocks = [{"ipBlock": {"cidr": block}} for block in site.fleet.network.egress_to]
    return [names, *([notice] if asks_for_notice(site.fleet.nodes) else []), *([{"to": blocks}] if blocks else [])]


def _namespace(name: str) -> Json:
    return {"namespaceSelector": {"matchLabels": {_NAME_OF_NAMESPACE: name}}}
