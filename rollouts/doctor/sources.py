"""What the cluster tells of Argo Rollouts' controller, and of the gateways whose proxies carry the traffic."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from rollouts.doctor.model import Controller, Gateway
from rollouts.doctor.network_policies import Caller
from rollouts.doctor.ports import RegionReader
from rollouts.errors import ApiError, Forbidden, NotFound
from rollouts.kube.model import EVERYWHERE, Resource
from rollouts.kube.objects import at, container_states, labels_of, name_of
from rollouts.kube.resources import CONFIG_MAPS, DEPLOYMENTS, LEASES, NAMESPACES, PODS
from rollouts.manifests.traffic_spec import PROXIES_IN
from tidegate.core.model import Json

CONFIG = "argo-rollouts-config"
LEASE = "argo-rollouts-controller-lock"
"""The controller's own names for them; neither can be changed by a flag."""

_LABEL = "app.kubernetes.io/name=argo-rollouts"
_COMPONENT = "app.kubernetes.io/component"
_METRICS = "/api/v1/namespaces/{namespace}/services/argo-rollouts-metrics:8090/proxy/metrics"
_LOG = "/api/v1/namespaces/{namespace}/pods/{pod}/log?tailLines=500{which}"
_TROUBLE = re.compile(r"level=(error|fatal)|panic:|fatal", re.IGNORECASE)
SINCE_SECONDS = 1800
"""The controller tries again every 1000 s at the latest; what is older may have been mended."""
LOG_LINES = 3
"""Enough to name a cause; the whole log is a kubectl away."""


async def controller_of(region: RegionReader, namespace: str, rollout: str) -> Controller:
    """Pods, lease, configuration, metrics and the end of the log, each as far as it may be read."""
    try:
        pods = [pod for pod in (await region.list(PODS, labels=_LABEL, namespace=namespace)).items if _reconciles(pod)]
    except (Forbidden, NotFound):
        return Controller(namespace=namespace, readable=False)
    try:
        deployments = (await region.list(DEPLOYMENTS, labels=_LABEL, namespace=namespace)).items
    except (Forbidden, NotFound):
        deployments = ()
    looks, errors = await _counted(region, namespace, rollout)
    config, unread = await _config(region, namespace)
    return Controller(
        namespace=namespace,
        deployments=tuple(one for one in deployments if _reconciles(one)),
        pods=tuple(pods),
        lease=await _one(region, LEASES, LEASE, namespace),
        config=config,
        config_unread=unread,
        reconciles=looks,
        errors=errors,
        log=await _log(region, namespace, pods, rollout),
    )


def _reconciles(item: Json) -> bool:
    """Not the dashboard, which the Helm chart gives the same name."""
    return labels_of(item).get(_COMPONENT) != "rollouts-dashboard"


async def _one(region: RegionReader, resource: Resource, name: str, namespace: str) -> Json | None:
    try:
        return await region.get(resource, name, namespace=namespace)
    except (Forbidden, NotFound):
        return None


async def _config(region: RegionReader, namespace: str) -> tuple[Json | None, bool]:
    """The ConfigMap, and whether it may not be read; one that is not there is an answer."""
    try:
        return await region.get(CONFIG_MAPS, CONFIG, namespace=namespace), False
    except NotFound:
        return None, False
    except Forbidden:
        return None, True


async def _counted(region: RegionReader, namespace: str, rollout: str) -> tuple[float | None, float | None]:
    """Looks at the Rollout and errors among them, since the controller started; only its leader counts."""
    try:
        text = await region.text(_METRICS.format(namespace=namespace))
    except ApiError:
        return None, None
    wanted = {"name": rollout, "namespace": region.namespace}
    counts = {"rollout_reconcile_count": 0.0, "rollout_reconcile_error": 0.0}
    lines = [line for line in text.splitlines() if line.startswith(tuple(counts))]
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            if sample.name in counts and wanted.items() <= sample.labels.items():
                counts[sample.name] += sample.value
    return counts["rollout_reconcile_count"], counts["rollout_reconcile_error"]


async def _log(region: RegionReader, namespace: str, pods: list[Json], rollout: str) -> tuple[str, ...]:
    """The last lines that speak of trouble with this Rollout or with a plugin; of the run before, where one crashed."""
    lines: list[str] = []
    for pod in pods:
        waits = any("waiting" in (state.get("state") or {}) for state in container_states(pod))
        which = "&previous=true" if waits else f"&sinceSeconds={SINCE_SECONDS}"
        try:
            text = await region.text(_LOG.format(namespace=namespace, pod=name_of(pod), which=which))
        except ApiError:
            continue
        about = (rollout, "plugin")
        lines += [line for line in text.splitlines() if _TROUBLE.search(line) and any(word in line for word in about)]
    return tuple(dict.fromkeys(lines[-LOG_LINES:]))


_OWNED_NAME = "gateway.envoyproxy.io/owning-gateway-name"
_OWNED_IN = "gateway.envoyproxy.io/owning-gateway-namespace"
"""Envoy Gateway puts both on its proxies, which run in its own namespace unless it was told otherwise."""

_SERVED = "gateway.networking.k8s.io/gateway-name"
"""Istio and others put it on proxies that run in the gateway's namespace (GEP-1762)."""


async def gateways_of(region: RegionReader, routes: Iterable[Json]) -> tuple[Gateway, ...]:
    """Each parent of these HTTPRoutes with its proxies, as far as pods may be listed."""
    parents = {
        (str(at(parent, "namespace", default=at(route, "metadata", "namespace"))), str(parent["name"]))
        for route in routes
        for parent in at(route, "spec", "parentRefs", default=[])
        if parent.get("kind", "Gateway") == "Gateway"
    }
    return tuple([await _gateway(region, namespace, name) for namespace, name in sorted(parents)])


async def _gateway(region: RegionReader, namespace: str, name: str) -> Gateway:
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


async def _pods(region: RegionReader, labels: str, namespace: str) -> tuple[Json, ...]:
    return (await region.list(PODS, labels=labels, namespace=namespace)).items


def _carries(pod: Json, namespace: str) -> bool:
    """Whether it belongs to the gateway of that namespace; two of one name may be in one cluster.

    What the policies of a pod in its node's own network see depends on the network.
    """
    place = labels_of(pod).get(_OWNED_IN, at(pod, "metadata", "namespace"))
    return place == namespace and not at(pod, "spec", "hostNetwork", default=False)


async def _callers(region: RegionReader, pods: Iterable[Json]) -> tuple[Caller, ...]:
    known: dict[str, Json | None] = {}
    for place in {str(at(pod, "metadata", "namespace")) for pod in pods}:
        try:
            known[place] = await region.get(NAMESPACES, place)
        except (Forbidden, NotFound):
            known[place] = None
    told = {place: None if body is None else labels_of(body) for place, body in known.items()}
    return tuple(Caller(pod=pod, namespace_labels=told[str(at(pod, "metadata", "namespace"))]) for pod in pods)
