"""A release of Helm's, as somebody has it who begins with tidegate.

Helm itself is not there: its objects are applied with the labels, annotations and field manager that it writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cluster.bed import GATEWAY, Bed
from cluster.endpoints import Endpoints, route
from cluster.others import kubectl
from e2e.machine import until

from rollouts.kube.resources import HTTP_ROUTES, PODS, ROLLOUTS
from tidegate.core.model import Json

PODS_OF_HELM = 4
MARKS: Json = {
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
    "annotations": {"meta.helm.sh/release-name": "chat", "meta.helm.sh/release-namespace": "serving"},
}
STRATEGY: Json = {"canary": {"maxSurge": 1, "maxUnavailable": 0, "steps": [{"setWeight": 25}, {"pause": {}}]}}


@dataclass(frozen=True)
class HelmRelease:
    """A Rollout, its one Service and its route, as a chart for vLLM has them, without traffic routing."""

    bed: Bed
    region: str
    name: str
    image: str

    @property
    def service(self) -> str:
        """To which the route leads all users."""
        return f"{self.name}-vllm"

    def install(self) -> None:
        """As `helm install` does; returns once it serves."""
        bodies = [{**body, "metadata": {**body["metadata"], **MARKS}} for body in self._bodies()]
        given = json.dumps({"kind": "List", "apiVersion": "v1", "items": bodies})
        kubectl(self.bed, self.region, "apply", "--server-side", "--field-manager=helm", "-f", "-", given=given)
        until("the release's pods are ready", lambda: len(self.serving()) == PODS_OF_HELM, seconds=180)

    def uninstall(self) -> None:
        """Take it away."""
        names = [f"{kind}/{name}" for kind, name in self._names()]
        kubectl(self.bed, self.region, "delete", "--ignore-not-found", *names)

    def serving(self) -> set[str]:
        """Its ready pods."""
        found = self.bed.ask(self.region, lambda client: client.list(PODS, labels=f"app={self.name}"))
        return {
            pod["metadata"]["name"]
            for pod in found.items
            if any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))
        }

    def _names(self) -> Iterator[tuple[str, str]]:
        for body in self._bodies():
            yield body["kind"].lower(), body["metadata"]["name"]

    def _bodies(self) -> list[Json]:
        return [self._service(), self._route(), self._workload()]

    def _service(self) -> Json:
        ports = [{"name": "web", "port": 8080, "targetPort": 8000}]
        spec = {"selector": {"app": self.name}, "ports": ports}
        return self._made("v1", "Service", self.service, spec)

    def _route(self) -> Json:
        rule = {
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
            "timeouts": {"request": "60s"},
            "backendRefs": [{"name": self.service, "port": 8080}],
        }
        spec = {"parentRefs": [{"name": GATEWAY}], "hostnames": [f"{self.name}.example"], "rules": [rule]}
        return self._made(HTTP_ROUTES.api_version, HTTP_ROUTES.kind, self.name, spec)

    def _started(self) -> Json:
        """How its pods start the engine, and what they need for it."""
        return {
            "command": ["python3", "-m", "standin"],
            "args": ["--model", "model", "--served-model-name", self.name, "--host", "0.0.0.0", "--port", "8000"],
            "workingDir": "/engine",
            "env": [{"name": "PYTHONPATH", "value": "/opt/standin"}, {"name": "HOME", "value": "/tmp"}],
        }

    def _volumes(self) -> list[Json]:
        return []

    def _workload(self) -> Json:
        engine = {
            "name": "vllm",
            "image": self.image,
            **self._started(),
            "ports": [{"name": "http", "containerPort": 8000}],
            "resources": {"requests": {"cpu": "20m", "memory": "192Mi"}, "limits": {"memory": "192Mi"}},
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 2},
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
        }
        spec = {
            "replicas": PODS_OF_HELM,
            "selector": {"matchLabels": {"app": self.name}},
            "strategy": STRATEGY,
            "template": {
                "metadata": {"labels": {"app": self.name}},
                "spec": {"containers": [engine], "volumes": self._volumes()},
            },
        }
        return self._made(ROLLOUTS.api_version, ROLLOUTS.kind, self.name, spec)

    def _made(self, api_version: str, kind: str, name: str, spec: Json) -> Json:
        metadata = {"name": name, "namespace": self.bed.namespace}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


@contextmanager
def watched(bed: Bed, region: str, name: str) -> Iterator[Endpoints]:
    """The endpoints that users of that route reach, while the block lasts."""
    watch = Endpoints(lambda: bed.client(region), route(name))
    try:
        yield watch
    finally:
        watch.end()
