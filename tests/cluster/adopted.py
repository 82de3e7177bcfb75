"""Releases of Helm's that are adopted, delivered to, and given back, under constant requests.

Helm itself is not there: its objects are applied with the labels, annotations and field manager that it writes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from cluster.bed import GATEWAY, Bed
from cluster.delivered_model import DeliveredModel
from cluster.endpoints import Endpoints, route
from cluster.others import kubectl
from cluster.stories import CANARY, Told, told_of
from e2e.machine import until

from registry.conventions import ENGINE_IMAGE
from rollouts.kube.model import Resource
from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, PODS, ROLLOUTS, SERVICES
from rollouts.manifests.conventions import RenderPart
from rollouts.model import Engine
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

PODS_OF_HELM = 4
MARKS: Json = {
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
    "annotations": {"meta.helm.sh/release-name": "chat", "meta.helm.sh/release-namespace": "serving"},
}
_SLOWLY: Json = {"maxSurge": 1, "maxUnavailable": 0}
STRATEGIES: Mapping[Resource, Json] = {
    ROLLOUTS: {"canary": {**_SLOWLY, "steps": [{"setWeight": 25}, {"pause": {}}]}},
    DEPLOYMENTS: {"type": "RollingUpdate", "rollingUpdate": _SLOWLY},
}


@dataclass(frozen=True)
class HelmRelease:
    """A workload, its one Service and its route, as a chart for vLLM has them, without traffic routing."""

    bed: Bed
    region: str
    name: str
    image: str
    workload: Resource = ROLLOUTS
    """Or Deployments."""

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

    def objects(self) -> Mapping[str, tuple[Json, Json]]:
        """Labels and spec of each object, as they are."""
        kinds = {each.kind: each for each in (self.workload, SERVICES, HTTP_ROUTES)}
        found = {}
        for body in self._bodies():
            kind, name = kinds[body["kind"]], body["metadata"]["name"]
            live = self.bed.ask(self.region, lambda client, kind=kind, name=name: client.get(kind, name))
            found[f"{kind.kind} {name}"] = (live["metadata"].get("labels") or {}, live["spec"])
        return found

    def marked(self) -> list[str]:
        """Objects and pods in the namespace that have the delivery's label still, of the kinds that it writes."""
        kinds = "pods,services,httproutes.gateway.networking.k8s.io,rollouts.argoproj.io,poddisruptionbudgets"
        said = kubectl(self.bed, self.region, "get", kinds, "-l", f"{DELIVERY}={self.name}", "-o", "name")
        return said.split()

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
            "strategy": STRATEGIES[self.workload],
            "template": {
                "metadata": {"labels": {"app": self.name}},
                "spec": {"containers": [engine], "volumes": self._volumes()},
            },
        }
        return self._made(self.workload.api_version, self.workload.kind, self.name, spec)

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


def adopted(bed: Bed, name: str, workload: Resource, *options: str) -> Told:
    """Adopted, a good version delivered, a bad one taken back, given back: nobody notices.

    `options` go to `adopt` and `release`.
    """
    region = next(iter(bed.around.clusters))
    model = DeliveredModel(bed, name, [[region]])
    model.change(stages=list(CANARY), fleet={**model.fleet(), "replicas": PODS_OF_HELM})
    first = model.version("champion")
    found = model.registry.resolve(model.name, first)
    image = model.registry.tags(found)[ENGINE_IMAGE]
    engine = Engine(version=first, digest=found.digest, model=model.name, image=image)
    # Policies by which every pod of the delivery has to be one of tidegate's come later.
    asyncio.run(model.set_up(region, engine, parts=(RenderPart.SETUP,)))
    release = HelmRelease(bed, region, model.name, image, workload)
    release.install()
    before, pods = release.objects(), release.serving()
    with watched(bed, region, model.name) as reached, model.users():
        _adopts(model, release, pods, options)
        _delivers(model, first)
        _gives_back(model, release, options)
    assert release.objects() == before
    assert reached.fewest == PODS_OF_HELM, f"fewest endpoints {reached.fewest} in {reached.looks} looks"
    # Our Service came and went; what users reached is told instead.
    model.endpoints.clear()
    told = told_of(model, "exit 1", note=f"never fewer than {reached.fewest} endpoints in {reached.looks} looks")
    release.uninstall()
    return told


def _adopts(model: DeliveredModel, release: HelmRelease, pods: set[str], options: Sequence[str]) -> None:
    planned = _types(model, "adopt", "--dry-run", *options)
    assert "nothing was written" in planned and "Helm release chat" in planned, planned
    assert not release.marked()
    said = _types(model, "adopt", *options)
    assert f"{model.name} is adopted" in said, said
    if release.workload is ROLLOUTS:
        assert release.serving() == pods, "adopting started pods"
    else:
        until("the Deployment's pods are gone", lambda: len(release.serving()) == PODS_OF_HELM, seconds=120)
        assert not release.serving() & pods
    model.exactly("1")


def _delivers(model: DeliveredModel, first: str) -> None:
    second = model.version()
    done = model.deliver("--output", "json").finish()
    assert (done.code, model.delivery().outcome) == (0, "delivered"), f"{done.out}\n{done.err}"
    model.exactly(second, previous=first)
    model.version(ttft=0.09)
    done = model.deliver("--output", "json").finish()
    assert (done.code, model.delivery().outcome) == (1, "rolled-back"), f"{done.out}\n{done.err}"
    model.exactly(second)


def _gives_back(model: DeliveredModel, release: HelmRelease, options: Sequence[str]) -> None:
    planned = _types(model, "release", "--dry-run", *options)
    own = "starts its own pods again" if release.workload is ROLLOUTS else f"gets {PODS_OF_HELM} of {PODS_OF_HELM} pods"
    assert own in planned and "nothing was written" in planned, planned
    said = _types(model, "release", *options)
    assert f"{model.name} is given back" in said, said
    until("its own pods serve alone", lambda: len(release.serving()) == PODS_OF_HELM, seconds=120)
    assert not release.marked(), release.marked()


def _types(model: DeliveredModel, verb: str, *more: str) -> str:
    done = model.start("rollout", verb, "delivery.yaml", *more).finish()
    assert done.code == 0, f"exit {done.code}: {done.out}\n{done.err}"
    print(f"$ tidegate rollout {verb} delivery.yaml {' '.join(more)}\n{done.out}{done.err}")
    return done.out


ALONE = {
    "adopted": partial(adopted, name="adopted", workload=ROLLOUTS),
    "deployment": partial(adopted, name="deployed", workload=DEPLOYMENTS),
    "deployment part by part": lambda bed: adopted(bed, "parted", DEPLOYMENTS, "--surge", "1"),
}
