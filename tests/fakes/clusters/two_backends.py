"""Two backends of one HTTPRoute in a simulated cluster: Deployments, Services or pools, and a gateway that answers."""

from __future__ import annotations

from copy import deepcopy

from fakes.clusters.region import an_image
from fakes.kube.cluster import FakeCluster
from fakes.kube.store import Event

from rollouts.kube.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    HTTP_ROUTES,
    INFERENCE_POOLS,
    LEASES,
    MANAGER,
    PODS,
    resource_of,
)
from tidegate.core.model import Json

IMAGE = "/spec/template/spec/containers/0/image"
REACTS_SECONDS = 2
"""After a write, as controllers do."""


class TwoBackends:
    """Two Deployments with Services, or pools, one route of both, and those who react to what is written of them."""

    def __init__(self, cluster: FakeCluster, *, pools: bool = False) -> None:
        self.cluster, self.pools = cluster, pools
        self.refused, self.dying, self.controller = "", False, "example/gateway"
        """What the gateway has against the route; whether pods do not start; whose gateway it is."""
        self.written = list[str]()
        self.cluster.on_change(self._react)
        for body in (a_route(pools=pools), *self._behind("blue", 2), *self._behind("green", 0)):
            self.cluster.create(resource_of(body), body, namespace=cluster.namespace, manager="helm")

    def _behind(self, name: str, replicas: int) -> tuple[Json, ...]:
        labels, engine = {"app": f"llm-{name}"}, {"name": "vllm", "image": an_image("1").image}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [engine]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        backend: Json = {"apiVersion": "v1", "kind": "Service", "spec": {"selector": labels}}
        if self.pools:
            picker = {"name": f"pick-{name}", "port": {"number": 9002}}
            backend = {
                "apiVersion": INFERENCE_POOLS.api_version,
                "kind": "InferencePool",
                "spec": {"selector": {"matchLabels": labels}, "endpointPickerRef": picker},
            }
            self.endpoints(f"pick-{name}", 1)
        metadata = {"name": f"llm-{name}", "namespace": self.cluster.namespace}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        return {**backend, "metadata": metadata}, deployment

    def _react(self, event: Event) -> None:
        """As the controllers of Deployments and of the gateway, two seconds later."""
        if event.manager.startswith(MANAGER) and event.kind.plural not in {LEASES.plural, "events"}:
            self.written.append(f"{event.kind.kind} {event.name}")
        if event.kind.plural == DEPLOYMENTS.plural and event.manager != "kube":
            self.cluster.time.call_later(REACTS_SECONDS, lambda: self._scaled(event.name))
        if event.kind.plural == HTTP_ROUTES.plural and event.manager != "gateway":
            self.cluster.time.call_later(REACTS_SECONDS, self._answered)

    def _scaled(self, name: str) -> None:
        found = self.cluster.get(DEPLOYMENTS, name)
        wanted = found["spec"]["replicas"]
        ready = 0 if self.dying else wanted
        status = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": ready}
        status["observedGeneration"] = found["metadata"]["generation"]
        self.cluster.update_status(DEPLOYMENTS, {**found, "status": status}, manager="kube")
        self.endpoints(name, ready)
        self._pods(name, wanted)

    def endpoints(self, service: str, count: int) -> None:
        metadata = {
            "name": f"{service}-1",
            "labels": {"kubernetes.io/service-name": service},
            "namespace": self.cluster.namespace,
        }
        ends = [{"addresses": [f"10.0.0.{each}"], "conditions": {"ready": True}} for each in range(count)]
        body = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": "IPv4",
        }
        self.cluster.apply(ENDPOINT_SLICES, {**body, "endpoints": ends}, manager="kube", force=True)

    def _pods(self, name: str, count: int) -> None:
        for each in self.cluster.list(PODS, labels=f"app={name}"):
            self.cluster.delete(PODS, each["metadata"]["name"])
        for each in range(count):
            waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
            states = [{"name": "vllm", "state": {"waiting": waiting}}] if self.dying else []
            ready = {"type": "Ready", "status": "False" if self.dying else "True"}
            status = {"conditions": [ready], "containerStatuses": states}
            metadata = {"name": f"{name}-{each}", "labels": {"app": name}}
            spec = {"containers": [{"name": "vllm", "image": "any"}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            made = self.cluster.create(PODS, pod, namespace=self.cluster.namespace)
            self.cluster.update_status(PODS, {**made, "status": status})

    def _answered(self) -> None:
        route = self.cluster.get(HTTP_ROUTES, "chat")
        seen = {"observedGeneration": route["metadata"]["generation"], "reason": "Fine", "message": ""}
        refused = {"status": "False", "reason": "InvalidKind", "message": self.refused} if self.refused else {}
        conditions = [
            {"type": "Accepted", "status": "True", **seen},
            {"type": "ResolvedRefs", "status": "True", **seen, **refused},
        ]
        parent = {"parentRef": {"name": "gate"}, "controllerName": self.controller, "conditions": conditions}
        self.cluster.update_status(HTTP_ROUTES, {**route, "status": {"parents": [parent]}}, manager="gateway")

    @property
    def route(self) -> Json:
        return self.cluster.get(HTTP_ROUTES, "chat")

    @property
    def weights(self) -> list[tuple[int, int]]:
        """Of both backends, rule by rule."""
        rules = self.route["spec"]["rules"]
        return [(one["weight"], two["weight"]) for one, two in (each["backendRefs"][:2] for each in rules[:2])]

    def weigh(self, blue: int, green: int) -> None:
        """Somebody else does."""

        def written(route: Json) -> None:
            for rule in route["spec"]["rules"][:2]:
                rule["backendRefs"][0]["weight"], rule["backendRefs"][1]["weight"] = blue, green

        self.cluster.edit(HTTP_ROUTES, "chat", written, manager="argocd")


def peer(name: str, *, pools: bool, workload: bool) -> Json:
    started = {"name": f"llm-{name}", "set": {IMAGE: "{image}"}}
    kind = {"kind": "InferencePool"} if pools else {}
    return {"backend": f"llm-{name}", "series": f"llm-{name}", **kind, **({"workload": started} if workload else {})}


def a_route(*, pools: bool = False) -> Json:
    kind = {"group": INFERENCE_POOLS.group, "kind": "InferencePool"} if pools else {"port": 8000}
    refs = [{"name": f"llm-{name}", **kind, "weight": weight} for name, weight in (("blue", 100), ("green", 0))]
    rules = [{"backendRefs": deepcopy(refs)}, {"backendRefs": deepcopy(refs)}]
    other = {"backendRefs": [{"name": "docs", "port": 80, "weight": 1}]}
    metadata = {"name": "chat"}
    spec = {"parentRefs": [{"name": "gate"}], "rules": [*rules, other]}
    return {"apiVersion": HTTP_ROUTES.api_version, "kind": "HTTPRoute", "metadata": metadata, "spec": spec}
