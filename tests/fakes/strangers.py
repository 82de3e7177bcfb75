"""What others have in a cluster: a release of Helm's that serves users under the very names of a delivery."""

from __future__ import annotations

from typing import Any

from fakes.kube.cluster import FakeCluster
from fakes.kube.store import Event
from rollouts.cluster.pods import is_ready
from rollouts.kube.model import Json
from rollouts.kube.resources import HTTP_ROUTES, PODS, ROLLOUTS, SERVICES, resource_of

LABELS = {"app.kubernetes.io/managed-by": "Helm"}
RELEASE = {"meta.helm.sh/release-name": "chat"}
PODS_OF_OTHERS = 4


def a_release(name: str, namespace: str) -> tuple[Json, ...]:
    """Both Services, the route, and the Rollout, as Argo Rollouts' own examples call them."""

    def made(api_version: str, kind: str, suffix: str, spec: Json) -> Json:
        metadata = {"name": name + suffix, "namespace": namespace, "labels": LABELS, "annotations": RELEASE}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    service = {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": 8000}]}
    backends = [{"name": f"{name}-{arm}", "port": 80, "weight": weight} for arm, weight in _SPLIT]
    route = {"parentRefs": [{"name": "public"}], "hostnames": ["chat.example"], "rules": [{"backendRefs": backends}]}
    engine = {"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "ports": [{"name": "http", "containerPort": 8000}]}
    routing = {"plugins": {"argoproj-labs/gatewayAPI": {"httpRoute": name, "namespace": namespace}}}
    canary = {
        "stableService": f"{name}-stable",
        "canaryService": f"{name}-canary",
        "trafficRouting": routing,
        "steps": [{"setWeight": 10}, {"pause": {}}],
    }
    rollout = {
        "replicas": PODS_OF_OTHERS,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [engine]}},
        "strategy": {"canary": canary},
    }
    return (
        made("v1", "Service", "-stable", service),
        made("v1", "Service", "-canary", service),
        made(HTTP_ROUTES.api_version, HTTP_ROUTES.kind, "", route),
        made(ROLLOUTS.api_version, ROLLOUTS.kind, "", rollout),
    )


_SPLIT = (("stable", 100), ("canary", 0))


def moved_in(cluster: FakeCluster, name: str, namespace: str) -> None:
    """The release is installed, and serves once its pods are up."""
    for body in a_release(name, namespace):
        cluster.create(resource_of(body), body, namespace=namespace, manager="helm")


def endpoints(cluster: FakeCluster, service: Json) -> set[str]:
    """The pods that a Service sends requests to, as its EndpointSlices would have them."""
    selector = service["spec"].get("selector") or {}
    if not selector:
        return set()
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    pods = cluster.list(PODS, labels=labels, namespace=service["metadata"]["namespace"])
    return {pod["metadata"]["name"] for pod in pods if is_ready(pod)}


class Endpoints:
    """Watches every Service of a cluster, and notes each write of tidegate that takes ready pods from one."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.lost: list[str] = []
        self.taken_over: list[str] = []
        """Objects of others that tidegate wrote to."""
        cluster.on_change(self._note)

    def of(self, name: str) -> int:
        """Ready pods behind a Service now; none when there is no such Service."""
        found = self._cluster.find(SERVICES, name)
        return len(endpoints(self._cluster, found)) if found else 0

    def _note(self, event: Event) -> None:
        if event.before is None or not (_deleted(event) or _ours(event.before, event.after)):
            return
        if "tidegate.dev/delivery" not in (event.before["metadata"].get("labels") or {}):
            self.taken_over.append(f"{event.kind.kind} {event.name}")
        if event.kind.plural != SERVICES.plural:
            return
        had = endpoints(self._cluster, event.before)
        has = endpoints(self._cluster, event.after) if event.change != "DELETED" else set()
        if len(has) < len(had):
            self.lost.append(f"{event.name}: {len(had)} -> {len(has)}")


def _deleted(event: Event) -> bool:
    """Whether an object went that no controller of the simulation takes away."""
    return event.change == "DELETED" and event.kind.plural in (SERVICES.plural, HTTP_ROUTES.plural, ROLLOUTS.plural)


def _ours(before: Json, after: Json) -> bool:
    """Whether tidegate made this change: its entry among the field managers moved."""
    return _entries(before) != _entries(after)


def _entries(body: Json) -> list[dict[str, Any]]:
    return [each for each in body["metadata"].get("managedFields") or [] if each.get("manager") == "tidegate"]
