"""A Rollout of others in a cluster in memory, with everything around it, and the fleet that names it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from fakes.argo.simulation import Simulation
from fakes.clock import SimulatedTime
from fakes.clusters.region import DELIVERER, a_release, an_image
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import client_of
from fakes.kube.store import Event

from rollouts.cluster.model import RegionConfig
from rollouts.cluster.referenced import ReferencedFleet, TrialNeeds
from rollouts.kube.resources import HTTP_ROUTES, INFERENCE_POOLS, LEASES, MANAGER, ROLLOUTS, resource_of
from rollouts.manifests.theirs_spec import RolloutReference, SetSpec
from tidegate.core.model import Json

NAME, NAMESPACE, THEIRS = "support-llm", "support", "chat"
ONE, TWO = an_image("1"), an_image("2")
STEPS = [{"setWeight": 10}, {"pause": {}}, {"setWeight": 50}, {"pause": {}}]


def place_of(*, workload: str | None = None, **fields: Any) -> RegionConfig:
    theirs = RolloutReference(
        name=THEIRS,
        container="vllm",
        workload=workload,
        set=SetSpec.model_validate(fields or {"image": "{image}"}),
        stable_service=f"{THEIRS}-stable",
        canary_service=f"{THEIRS}-canary",
        route=THEIRS,
    )
    return RegionConfig(region="eu-west-1", name=NAME, theirs=theirs, entry="https://e", stable_url="", canary_url="")


class TheirRegion:
    """A Rollout that somebody applies by kubectl, and the fleet that names it."""

    def __init__(
        self, change: Any = lambda rollout: None, *, workload: str | None = None, pools: bool = False, **fields: Any
    ) -> None:
        self.time = SimulatedTime(alone=True)
        self.cluster = FakeCluster("eu-west-1", namespace=NAMESPACE, time=self.time)
        self.simulation = Simulation(self.cluster, start_seconds=4)
        self.place = place_of(workload=workload, **fields)
        *others, rollout = deepcopy(a_release(THEIRS, NAMESPACE))
        rollout["spec"]["strategy"]["canary"]["steps"] = deepcopy(STEPS)
        rollout["spec"]["template"]["spec"]["containers"][0]["image"] = ONE.image
        change(rollout)
        self.manifest = rollout
        if workload:
            others.append(borrowing(rollout, workload))
        if pools:
            others += led_to_pools(others[-1])
        for body in (*others, rollout):
            self.cluster.create(resource_of(body), body, namespace=NAMESPACE, manager="kubectl-client-side-apply")
        self.api, self.written = Api(self.cluster), list[str]()
        self.cluster.on_change(self._note)
        self.fleet = self.open()

    def _note(self, event: Event) -> None:
        if event.manager.startswith(MANAGER) and event.kind.plural != LEASES.plural:
            self.written.append(f"{event.kind.kind} {event.name}")

    def open(self, needs: TrialNeeds | None = None, **options: Any) -> ReferencedFleet:
        known = {"carrier": DELIVERER, "engines": (ONE, TWO)} | options
        return ReferencedFleet(self.place, cluster=client_of(self.api), clock=self.time, needs=needs, **known)

    @property
    def rollout(self) -> Json:
        return self.cluster.get(ROLLOUTS, THEIRS)

    @property
    def weight(self) -> int:
        return self.place.routes.weight(self.cluster.get(HTTP_ROUTES, THEIRS))

    def apply(self, change: Any = lambda rollout: None) -> None:
        """Its owner applies the manifest again, client side."""
        body = deepcopy(self.manifest)
        change(body)
        self.cluster.edit(ROLLOUTS, THEIRS, lambda live: live["spec"].update(body["spec"]) and None)


def borrowing(rollout: Json, workload: str) -> Json:
    """A Deployment with the pod template of that Rollout, which gets a `workloadRef` to it."""
    own = {key: rollout["spec"].pop(key) for key in ("selector", "template")}
    rollout["spec"]["workloadRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload}
    metadata = {"name": workload, "namespace": NAMESPACE}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 0, **own}}


def led_to_pools(route: Json) -> list[Json]:
    """The pools of that route's backends, which become these; they select all pods, as their owner wrote them."""
    pool = {"apiVersion": INFERENCE_POOLS.api_version, "kind": INFERENCE_POOLS.kind}
    refs = route["spec"]["rules"][0]["backendRefs"]
    for ref in refs:
        ref.update(group=INFERENCE_POOLS.group, kind=INFERENCE_POOLS.kind)
    spec = {"selector": {"matchLabels": {"app": THEIRS}}}
    return [{**pool, "metadata": {"name": ref["name"]}, "spec": deepcopy(spec)} for ref in refs]


async def up(**fields: Any) -> TheirRegion:
    region = TheirRegion(**fields)
    await region.time.sleep(30)
    return region
