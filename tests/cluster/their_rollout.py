"""A Rollout of a team that has one: applied by plain `kubectl apply`, with its Services, route and PodMonitor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from cluster.bed import GATEWAY, Bed
from cluster.endpoints import Endpoints, route
from cluster.others import kubectl
from fakes.waiting import until

from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, INFERENCE_POOLS, POD_MONITORS, PODS, ROLLOUTS
from rollouts.manifests.conventions import GATEWAY_PLUGIN
from tidegate.core.model import Json

PODS_OF_THEIRS = 4
CLAIM = "models"
STEPS: list[Json] = [{"setWeight": 10}, {"pause": {}}, {"setWeight": 50}, {"pause": {}}]


@dataclass(frozen=True)
class TheirRollout:
    """Engines that take vLLM's arguments, behind two Services of one HTTPRoute."""

    bed: Bed
    region: str
    name: str
    image: str
    workload: str = ""
    """The Deployment that has the pod template; empty for the Rollout itself."""
    gateway: Mapping[str, str] | None = None
    """Another one than that of all tests."""
    kind: ClassVar[Json] = {"port": 8080}
    """Of the route's backends."""

    def install(self, version: str = "1") -> None:
        """As the team applies it; returns once it serves."""
        self.apply(version)
        until("the team's pods are ready", lambda: len(self.serving()) == PODS_OF_THEIRS)

    def apply(self, version: str, *kinds: str) -> None:
        """Client side, as the manifest in Git has it; all of it, or these kinds."""
        items = [each for each in self._bodies(version) if not kinds or each["kind"] in kinds]
        given = json.dumps({"kind": "List", "apiVersion": "v1", "items": items})
        kubectl(self.bed, self.region, "apply", "-f", "-", given=given)

    def uninstall(self) -> None:
        """Take it away."""
        names = [f"{body['kind'].lower()}/{body['metadata']['name']}" for body in self._bodies("1")]
        kubectl(self.bed, self.region, "delete", "--ignore-not-found", *names)

    def serving(self) -> set[str]:
        """Its ready pods."""
        found = self.bed.ask(self.region, lambda client: client.list(PODS, labels=f"team={self.name}"))
        return {
            pod["metadata"]["name"]
            for pod in found
            if any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))
        }

    def template(self) -> Json:
        """The pod template that the Rollout has now."""
        kind, name = (DEPLOYMENTS, self.workload) if self.workload else (ROLLOUTS, self.name)
        found = self.bed.ask(self.region, lambda client: client.get(kind, name))
        template: Json = found["spec"]["template"]
        return template

    def _bodies(self, version: str) -> list[Json]:
        stable, canary = f"{self.name}-stable", f"{self.name}-canary"
        return [
            self._service(stable, self.name),
            self._service(canary, self.name),
            self._route(stable, canary),
            self._monitor("rollouts-pod-template-hash"),
            *self._serving(self._rollout(version)),
        ]

    def _service(self, name: str, app: str) -> Json:
        port = {"name": "web", "port": 8080, "targetPort": 8000}
        return self._made("v1", "Service", name, {"selector": {"app": app}, "ports": [port]})

    def _route(self, first: str, second: str) -> Json:
        backends = [{"name": name, **self.kind, "weight": weight} for name, weight in ((first, 100), (second, 0))]
        rule = {
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
            "timeouts": {"request": "60s"},
            "backendRefs": backends,
        }
        led = {
            "parentRefs": [self.gateway or {"name": GATEWAY, "namespace": self.bed.gateway_namespace}],
            "hostnames": [f"{self.name}.example"],
            "rules": [rule],
        }
        return self._made(HTTP_ROUTES.api_version, HTTP_ROUTES.kind, self.name, led)

    def _monitor(self, label: str) -> Json:
        scraped = {
            "selector": {"matchLabels": {"team": self.name}},
            "podTargetLabels": [label],
            "podMetricsEndpoints": [{"port": "http", "path": "/metrics", "interval": "5s"}],
        }
        return self._made(POD_MONITORS.api_version, POD_MONITORS.kind, self.name, scraped)

    def _serving(self, rollout: Json) -> Iterator[Json]:
        """The Rollout, and the Deployment that it borrows its pod template from, without pods of its own."""
        if self.workload:
            own = {key: rollout.pop(key) for key in ("selector", "template")} | {"replicas": 0}
            reference = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "name": self.workload}
            rollout["workloadRef"] = {**reference, "scaleDown": "onsuccess"}
            yield self._made(DEPLOYMENTS.api_version, DEPLOYMENTS.kind, self.workload, own)
        yield self._made(ROLLOUTS.api_version, ROLLOUTS.kind, self.name, rollout)

    def _pods(self, version: str, app: str) -> Json:
        """The pod template of a version."""
        weights = f"/models/{self.name}/{version}"
        engine = {
            "name": "vllm",
            "image": self.image,
            "args": [f"--model={weights}", f"--served-model-name={self.name}", "--port=8000"],
            "ports": [{"name": "http", "containerPort": 8000}],
            "env": [{"name": "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "value": "4000"}],
            "resources": {"requests": {"cpu": "20m", "memory": "192Mi"}, "limits": {"memory": "192Mi"}},
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 2},
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
            "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        }
        volume = {"name": "models", "persistentVolumeClaim": {"claimName": CLAIM}}
        labels = {"app": app, "team": self.name}
        return {"metadata": {"labels": labels}, "spec": {"containers": [engine], "volumes": [volume]}}

    def _rollout(self, version: str) -> Json:
        routing = {GATEWAY_PLUGIN: {"httpRoute": self.name, "namespace": self.bed.namespace}}
        canary = {
            "stableService": f"{self.name}-stable",
            "canaryService": f"{self.name}-canary",
            "trafficRouting": {"plugins": routing},
            "steps": STEPS,
        }
        return {
            "replicas": PODS_OF_THEIRS,
            "selector": {"matchLabels": {"app": self.name}},
            "strategy": {"canary": canary},
            "template": self._pods(version, self.name),
        }

    def _made(self, api_version: str, kind: str, name: str, spec: Mapping[str, object]) -> Json:
        metadata = {"name": name, "namespace": self.bed.namespace}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


class TheirBackends(TheirRollout):
    """Two Deployments behind two backends of one HTTPRoute: blue has the users, green has no pods."""

    def _bodies(self, version: str) -> list[Json]:
        blue, green = f"{self.name}-blue", f"{self.name}-green"
        return [
            self._service(blue, blue),
            self._service(green, green),
            self._route(blue, green),
            self._monitor("app"),
            self._deployment(blue, version, PODS_OF_THEIRS),
            self._deployment(green, version, 0),
        ]

    def _deployment(self, name: str, version: str, replicas: int) -> Json:
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": self._pods(version, name),
        }
        return self._made(DEPLOYMENTS.api_version, DEPLOYMENTS.kind, name, spec)


class TheirPools(TheirBackends):
    """The same with InferencePools; no picker runs, so theirs leads to a Service of engines."""

    kind: ClassVar[Json] = {"group": INFERENCE_POOLS.group, "kind": INFERENCE_POOLS.kind}

    def _bodies(self, version: str) -> list[Json]:
        pools = [self._pool(f"{self.name}-{peer}") for peer in ("blue", "green")]
        return [*pools, *super()._bodies(version)]

    def _pool(self, name: str) -> Json:
        spec = {
            "selector": {"matchLabels": {"app": name}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": f"{self.name}-blue", "port": {"number": 8080}},
        }
        return self._made(INFERENCE_POOLS.api_version, INFERENCE_POOLS.kind, name, spec)


@contextmanager
def watched(bed: Bed, region: str, name: str) -> Iterator[Endpoints]:
    """The endpoints that users of that route reach, while the block lasts."""
    watch = Endpoints(lambda: bed.client(region), route(name))
    try:
        yield watch
    finally:
        watch.end()
