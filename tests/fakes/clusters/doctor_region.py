"""One region's cluster with a delivery in it: everything well, until a test breaks it.

The objects are those that tidegate renders, on the fake API server, under the simulated Argo Rollouts controller.
The controller's log, which no simulation looks after, is written here as that of a healthy cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from fakes.argo.objects import reference_to
from fakes.argo.simulation import Simulation
from fakes.clock import SimulatedTime
from fakes.fleet import fleet_spec
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster, Kept
from fakes.kube.server import client_of

from rollouts.doctor.diagnosis import diagnose, examine, gather, required_access
from rollouts.doctor.model import DiagnosisTarget, EvidenceQuery, Finding, ScrapeInterval, metrics_of
from rollouts.kube.resources import DEPLOYMENTS, MANAGER, PODS, ROLLOUTS, Resource, resource_of
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.manifest import Release
from rollouts.manifests.render import render
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.model import Json
from tidegate.core.names import VERSION

Change = Callable[[Json], None]

NAME, REGION, NAMESPACE, CONTROLLER = "support-llm", "eu-west-1", "llm", "argo-rollouts"
GPU = "nvidia.com/gpu"
GUARD_IMAGE = "registry.example.com/tidegate@sha256:" + "5" * 64


def fleet(**changes: Any) -> ArgoFleetSpec:
    """The fleet's spec; `changes` are fields of it."""
    return fleet_spec(**{"namespace": NAMESPACE, "admission": True, **changes})


SCRAPING = ScrapeInterval(
    query="max(1 / changes(timestamp(up)[5m:1s]))", interval=timedelta(seconds=5), look=timedelta(seconds=15)
)

ANY_RELEASE = Release(
    delivery=NAME,
    region=REGION,
    version="0",
    digest="",
    image="none",
    accelerator="nvidia-h200-141gb",
    guard=GUARD_IMAGE,
)
"""Of no engine: the names of objects are the same for all."""


class FakePrometheus:
    """Scrapes engines every 5 s, and answers 1 to everything else, but for what a test changes."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[float, ...] | Exception] = {}
        """By a word of the query; an exception is raised."""
        self.unknown: set[str] = set()
        """Metrics that nobody exports."""

    async def ask(self, query: str) -> tuple[float, ...]:
        if self.unknown & set(metrics_of(query)):
            return ()
        usual = (5.0,) if "changes(" in query else (1.0,)
        found = next((answer for word, answer in self.answers.items() if word in query), usual)
        if isinstance(found, Exception):
            raise found
        return found


_SERVING: dict[str, tuple[float, int, Kept]] = {}
"""When version 7 was stable, how many pods were made by then, and what was in the cluster: regions that are alike are
brought there once."""


class Region:
    """The cluster, its controllers, its Prometheus, and a doctor."""

    def __init__(self, spec: ArgoFleetSpec | None = None, *, deploy: bool = True) -> None:
        self.spec = spec or fleet()
        self.time = SimulatedTime()
        self.cluster = FakeCluster(REGION, namespace=NAMESPACE, time=self.time)
        self.simulation = Simulation(self.cluster, start_seconds=20)
        self.api = Api(self.cluster)
        self.prometheus = FakePrometheus()
        self.questions: tuple[EvidenceQuery, ...] = ()
        self.log: list[str] = []
        """The controller's log, besides what the simulation writes into it."""
        self.at_last: list[Callable[[], object]] = []
        """Done just before the doctor looks, where a simulated controller would undo it."""
        like = self.spec.model_dump_json()
        if deploy and like in _SERVING:
            self.time.elapsed, pods_made, kept = _SERVING[like]
            self.cluster.begin_with(kept)
            self.simulation.begin(pods_made=pods_made)
            self.simulation.settle()
            return
        _install(self)
        for body in render(self.spec, ANY_RELEASE, parts=(RenderPart.SETUP,)):
            self.put(body)
        if deploy:
            self.deploy("7")
            # Until the first version is stable, and every delay of its start has passed.
            self.wait(300)
            _SERVING[like] = self.time.elapsed, self.simulation.pods_made, self.cluster.kept()

    def deploy(self, version: str) -> None:
        """Apply what tidegate renders for a version; a template of another version begins a rollout."""
        image = f"registry.example.com/engines@sha256:{version * 64}"
        engine = {"version": version, "digest": version * 64, "image": image}
        for body in self.rendered(ANY_RELEASE.model_copy(update=engine)):
            self.put(body, manager=MANAGER)

    def rendered(self, release: Release) -> tuple[Json, ...]:
        """All that tidegate brings for an engine."""
        return render(self.spec, release)

    def put(self, body: Json, *, manager: str = "controller") -> None:
        """Create it, or merge it into what is there."""
        resource, name = resource_of(body), body["metadata"]["name"]
        namespace = body["metadata"].get("namespace")
        if self.cluster.find(resource, name, namespace=namespace) is None:
            made = self.cluster.create(resource, body, namespace=namespace, manager=manager)
            if resource == DEPLOYMENTS:
                self.cluster.create(PODS, _pod(made), namespace=namespace)
        elif resource == ROLLOUTS:
            self.cluster.patch(resource, name, {"spec": body["spec"]}, namespace=namespace, manager=manager)

    def edit(self, resource: Resource, name: str, change: Change) -> None:
        """Somebody changes an object."""
        self.cluster.edit(resource, name, change)

    def promote_step(self) -> None:
        """As `kubectl argo rollouts promote` at a pause."""
        index = self.cluster.get(ROLLOUTS, NAME)["status"].get("currentStepIndex", 0)
        status = {"pauseConditions": None, "currentStepIndex": index + 1}
        self.cluster.patch(ROLLOUTS, NAME, {"status": status}, subresource="status")

    def wait(self, seconds: float) -> None:
        """Time passes; every controller does its part."""
        self.simulation.settle()
        self.time.advance(seconds)
        self.simulation.settle()

    def refused(self, why: str) -> None:
        """The controller's word on the spec, when the doctor looks; the simulated one takes almost any."""
        said = {"type": "InvalidSpec", "status": "True", "reason": "InvalidSpec", "message": why}
        status = {"status": {"conditions": [said]}}
        self.at_last.append(lambda: self.cluster.patch(ROLLOUTS, NAME, status, subresource="status"))

    def states(self, pod: Json, *states: Json) -> None:
        """The kubelet's word on a pod's containers, when the doctor looks."""
        metadata, status = pod["metadata"], {"status": {"containerStatuses": list(states)}}
        where = {"namespace": metadata["namespace"], "subresource": "status"}
        self.at_last.append(lambda: self.cluster.patch(PODS, metadata["name"], status, **where))

    def without_a_node(self, version: str) -> None:
        """The scheduler finds none for its pods, from now on."""
        since = {"lastTransitionTime": self.cluster.time.now().isoformat()}
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": f"Insufficient {GPU}"}
        status = {"status": {"conditions": [{**said, **since}]}}
        for pod in self.cluster.list(PODS, labels=f"{VERSION}={version}"):
            name = pod["metadata"]["name"]
            self.at_last.append(lambda name=name: self.cluster.patch(PODS, name, status, subresource="status"))

    def be_looked_at(self) -> None:
        """Come to rest, with everything written that others than the simulated controllers write."""
        self.simulation.settle()
        _keep_alive(self)
        for change in self.at_last:
            change()

    async def examined(self, *, rights: bool = False, twice: bool = False) -> tuple[Finding, ...]:
        """What the doctor finds, through the API server.

        `rights`: whether it asks for all fifty that a delivery needs, which takes half of its time; `twice`: look
        again, as the command does.
        """
        self.be_looked_at()
        target = DiagnosisTarget(
            region=REGION,
            delivery=NAME,
            questions=self.questions,
            scraping=SCRAPING,
            rights=required_access(self.spec, ANY_RELEASE) if rights else (),
            traffic=self.spec.traffic,
            objects=self.rendered(ANY_RELEASE),
        )
        client = client_of(self.api)
        try:
            if twice:
                return await diagnose(client, self.prometheus.ask, target, self.cluster.time)
            return examine(await gather(client, self.prometheus.ask, target, self.cluster.time))
        finally:
            await client.close()

    async def found(self, **options: Any) -> set[str]:
        """The codes of all findings."""
        return {one.code for one in await self.examined(**options)}


def trial() -> Region:
    """With version 8 deployed and without users."""
    region = Region()
    region.deploy("8")
    region.wait(60)
    return region


def canary() -> Region:
    """With 5 % of users on version 8."""
    region = trial()
    region.promote_step()
    region.wait(60)
    return region


def _install(region: Region) -> None:
    """What is in a cluster before any delivery: the controller."""
    cluster = region.cluster
    cluster.create_namespace(CONTROLLER)
    region.put(_controller())
    region.wait(60)


def _pod(deployment: Json) -> Json:
    """Its one pod, which goes with it."""
    metadata, template = deployment["metadata"], deployment["spec"]["template"]
    named = {"name": f"{metadata['name']}-1", "namespace": metadata["namespace"]}
    owned = {**named, **template["metadata"], "ownerReferences": [reference_to(deployment)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": owned, "spec": template["spec"]}


def _controller() -> Json:
    labels = {"app.kubernetes.io/name": "argo-rollouts"}
    container = {"name": "argo-rollouts", "image": "quay.io/argoproj/argo-rollouts:v1.9.1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "argo-rollouts", "namespace": CONTROLLER, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _keep_alive(region: Region) -> None:
    """What others than the simulated controllers write all the time."""
    cluster = region.cluster
    for pod in cluster.list(PODS, namespace=CONTROLLER):
        path = f"/api/v1/namespaces/{CONTROLLER}/pods/{pod['metadata']['name']}/log"
        region.api.texts[path] = lambda: "\n".join([*region.simulation.log, *region.log])
