"""A release of Helm's that is adopted, delivered to, and given back, under constant requests.

Helm itself is not there: its objects are applied with the labels, annotations and field manager that it writes.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from cluster.bed import GATEWAY, Bed
from cluster.delivered_model import DeliveredModel
from cluster.endpoints import LOOK_SECONDS
from cluster.others import kubectl
from cluster.stories import CANARY, Told, told_of
from e2e.machine import until

from registry.conventions import ENGINE_IMAGE
from rollouts.errors import FleetError, NotFound
from rollouts.kube.objects import at
from rollouts.kube.resources import ENDPOINT_SLICES, HTTP_ROUTES, PODS, ROLLOUTS, SERVICES
from rollouts.manifests.conventions import RenderPart
from rollouts.model import Engine
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

PODS_OF_HELM = 4
MARKS: Json = {
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
    "annotations": {"meta.helm.sh/release-name": "chat", "meta.helm.sh/release-namespace": "serving"},
}


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

    def objects(self) -> Mapping[str, tuple[Json, Json]]:
        """Labels and spec of each object, as they are."""
        kinds = {ROLLOUTS.kind: ROLLOUTS, SERVICES.kind: SERVICES, HTTP_ROUTES.kind: HTTP_ROUTES}
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
        return [self._service(), self._route(), self._rollout()]

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

    def _rollout(self) -> Json:
        engine = {
            "name": "vllm",
            "image": self.image,
            "command": ["python3", "-m", "standin"],
            "args": ["--model", "model", "--served-model-name", self.name, "--host", "0.0.0.0", "--port", "8000"],
            "workingDir": "/engine",
            "env": [{"name": "PYTHONPATH", "value": "/opt/standin"}, {"name": "HOME", "value": "/tmp"}],
            "ports": [{"name": "http", "containerPort": 8000}],
            "resources": {"requests": {"cpu": "20m", "memory": "192Mi"}, "limits": {"memory": "192Mi"}},
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 2},
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
        }
        spec = {
            "replicas": PODS_OF_HELM,
            "selector": {"matchLabels": {"app": self.name}},
            "strategy": {"canary": {"maxSurge": 1, "maxUnavailable": 0, "steps": [{"setWeight": 25}, {"pause": {}}]}},
            "template": {"metadata": {"labels": {"app": self.name}}, "spec": {"containers": [engine]}},
        }
        return self._made(ROLLOUTS.api_version, ROLLOUTS.kind, self.name, spec)

    def _made(self, api_version: str, kind: str, name: str, spec: Json) -> Json:
        metadata = {"name": name, "namespace": self.bed.namespace}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


class ReachedEndpoints:
    """The fewest ready endpoints that the users of a route were led to, counted again and again from another thread."""

    def __init__(self, bed: Bed, region: str, route: str) -> None:
        self._bed, self._region, self._route = bed, region, route
        self._ending = threading.Event()
        self.looks = 0
        self.fewest: int | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._look_on()), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    async def _look_on(self) -> None:
        client = self._bed.client(self._region)
        while not self._ending.is_set():
            with suppress(FleetError, NotFound):
                route = await client.get(HTTP_ROUTES, self._route)
                rules = at(route, "spec", "rules", default=[])
                led = {ref["name"] for rule in rules for ref in rule["backendRefs"] if ref.get("weight", 1)}
                slices = (await client.list(ENDPOINT_SLICES)).items
                reached = sum(
                    bool(each["conditions"].get("ready", True))
                    for one in slices
                    if one["metadata"]["labels"].get("kubernetes.io/service-name") in led
                    for each in one.get("endpoints") or ()
                )
                self.looks += 1
                self.fewest = reached if self.fewest is None else min(self.fewest, reached)
            await asyncio.sleep(LOOK_SECONDS)
        await client.close()


@contextmanager
def watched(bed: Bed, region: str, route: str) -> Iterator[ReachedEndpoints]:
    watch = ReachedEndpoints(bed, region, route)
    try:
        yield watch
    finally:
        watch.end()


def adopted(bed: Bed) -> Told:
    """Adopted, a good version delivered, a bad one taken back, given back: nobody notices."""
    region = next(iter(bed.around.clusters))
    model = DeliveredModel(bed, "adopted", [[region]])
    model.change(stages=list(CANARY), fleet={**model.fleet(), "replicas": PODS_OF_HELM})
    first = model.version("champion")
    found = model.registry.resolve(model.name, first)
    image = model.registry.tags(found)[ENGINE_IMAGE]
    engine = Engine(version=first, digest=found.digest, model=model.name, image=image)
    # Policies by which every pod of the delivery has to be one of tidegate's come later.
    asyncio.run(model.set_up(region, engine, parts=(RenderPart.SETUP,)))
    release = HelmRelease(bed, region, model.name, image)
    release.install()
    before, pods = release.objects(), release.serving()
    with watched(bed, region, model.name) as reached, model.users():
        _adopts(model, release, pods)
        _delivers(model, first)
        _gives_back(model, release)
    assert release.objects() == before
    assert reached.fewest == PODS_OF_HELM, f"fewest endpoints {reached.fewest} in {reached.looks} looks"
    # Our Service came and went; what users reached is told instead.
    model.endpoints.clear()
    told = told_of(model, "exit 1", note=f"never fewer than {reached.fewest} endpoints in {reached.looks} looks")
    release.uninstall()
    return told


def _adopts(model: DeliveredModel, release: HelmRelease, pods: set[str]) -> None:
    planned = _types(model, "adopt", "--dry-run")
    assert "nothing was written" in planned and "Helm release chat" in planned, planned
    assert not release.marked()
    said = _types(model, "adopt")
    assert f"{model.name} is adopted" in said, said
    assert release.serving() == pods, "adopting started pods"
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


def _gives_back(model: DeliveredModel, release: HelmRelease) -> None:
    planned = _types(model, "release", "--dry-run")
    assert "starts its own pods again" in planned and "nothing was written" in planned, planned
    said = _types(model, "release")
    assert f"{model.name} is given back" in said, said
    until("its own pods serve alone", lambda: len(release.serving()) == PODS_OF_HELM, seconds=120)
    assert not release.marked(), release.marked()


def _types(model: DeliveredModel, verb: str, *more: str) -> str:
    done = model.start("rollout", verb, "delivery.yaml", *more).finish()
    assert done.code == 0, f"exit {done.code}: {done.out}\n{done.err}"
    print(f"$ tidegate rollout {verb} delivery.yaml {' '.join(more)}\n{done.out}{done.err}")
    return done.out


ALONE = {"adopted": adopted}
