"""A region on stage: a cluster, its simulated controllers and one Rollout, told in the words of a delivery.

For tests of the simulation, and of whatever needs a Rollout in some state without a client. The actions are the
patches of the kubectl plugin (`pkg/kubectl-argo-rollouts/cmd/`).
"""

from __future__ import annotations

import copy
from typing import Any

from fakes.argo.objects import HASH_LABEL
from fakes.argo.simulation import Simulation
from fakes.kube.cluster import FakeCluster

from rollouts.kube.resources import HTTP_ROUTES, PODS, REPLICA_SETS, ROLLOUTS, SERVICES
from tidegate.core.model import Json

NAME = "llm"
VERSION = "tidegate.dev/version"
GATEWAY: Json = {"plugins": {"argoproj-labs/gatewayAPI": {"httpRoute": NAME, "namespace": "default"}}}
STEPS: list[Json] = [
    {"setCanaryScale": {"replicas": 1}},
    {"pause": {}},
    {"setWeight": 5},
    {"pause": {}},
    {"setCanaryScale": {"weight": 50}},
    {"setWeight": 50},
    {"pause": {}},
]
"""Warm before weight, then two weights."""


def canary(**fields: Any) -> Json:
    """A canary strategy behind the Gateway API plugin; a field of None is left out."""
    strategy = {
        "canaryService": f"{NAME}-canary",
        "stableService": f"{NAME}-stable",
        "trafficRouting": GATEWAY,
        "steps": STEPS,
    } | fields
    return {"canary": {key: part for key, part in strategy.items() if part is not None}}


def rollout(strategy: Json, *, version: str = "1", replicas: int = 4, **spec: Any) -> Json:
    labels = {"app": NAME}
    container = {"name": "engine", "image": f"registry.example/engine:{version}"}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Rollout",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels | {VERSION: version}}, "spec": {"containers": [container]}},
            "strategy": copy.deepcopy(strategy),
        }
        | spec,
    }


def service(name: str) -> Json:
    spec = {"selector": {"app": NAME}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def http_route() -> Json:
    backends = [{"name": f"{NAME}-{arm}", "port": 80} for arm in ("stable", "canary")]
    spec = {"parentRefs": [{"name": "public"}], "rules": [{"backendRefs": backends}]}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": NAME},
        "spec": spec,
    }


class Scene:
    """One Rollout named `llm`, its Services and HTTPRoute; version 1 is deployed and ready."""

    def __init__(self, strategy: Json | None = None, *, ready: bool = True, **spec: Any) -> None:
        self.cluster = FakeCluster()
        self.simulation = Simulation(self.cluster)
        for name in (f"{NAME}-stable", f"{NAME}-canary"):
            self.cluster.create(SERVICES, service(name))
        self.cluster.create(HTTP_ROUTES, http_route())
        self.cluster.create(ROLLOUTS, rollout(strategy or canary(), **spec))
        if ready:
            self.wait(30)

    def wait(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due."""
        self.simulation.settle()
        self.cluster.time.advance(seconds)  # type: ignore[attr-defined]
        self.simulation.settle()

    @property
    def rollout(self) -> Json:
        self.simulation.settle()
        return self.cluster.get(ROLLOUTS, NAME)

    @property
    def status(self) -> Json:
        status: Json = self.rollout["status"]
        return status

    @property
    def phase(self) -> str:
        """Phase and message."""
        return f"{self.status['phase']} {self.status.get('message', '')}".strip()

    @property
    def step(self) -> int:
        return int(self.status["currentStepIndex"])

    @property
    def weight(self) -> int:
        """What the HTTPRoute gives the canary; both arms together are always 100."""
        self.simulation.settle()
        stable, canary_arm = self.cluster.get(HTTP_ROUTES, NAME)["spec"]["rules"][0]["backendRefs"]
        assert stable["weight"] + canary_arm["weight"] == 100
        return int(canary_arm["weight"])

    @property
    def pods(self) -> dict[str, int]:
        """How many there are of each version."""
        self.simulation.settle()
        versions = [pod["metadata"]["labels"][VERSION] for pod in self.cluster.list(PODS)]
        return {version: versions.count(version) for version in sorted(set(versions))}

    @property
    def serves(self) -> dict[str, str]:
        """The version that each Service selects."""
        self.simulation.settle()
        versions = {rs["metadata"]["labels"][HASH_LABEL]: version for version, rs in self.replica_sets.items()}
        arms = ("stable", "canary")
        selected = {arm: self.cluster.get(SERVICES, f"{NAME}-{arm}")["spec"]["selector"] for arm in arms}
        return {arm: versions.get(selector.get(HASH_LABEL, ""), "") for arm, selector in selected.items()}

    @property
    def replica_sets(self) -> dict[str, Json]:
        """By version; the youngest of each."""
        self.simulation.settle()
        found = sorted(self.cluster.list(REPLICA_SETS), key=lambda rs: rs["metadata"]["creationTimestamp"])
        return {rs["metadata"]["labels"][VERSION]: rs for rs in found}

    def deploy(self, version: str) -> None:
        """`set image`, and the label that goes with it; also back to a version that was there (`undo`)."""

        def change(body: Json) -> None:
            template = body["spec"]["template"]
            template["metadata"]["labels"][VERSION] = version
            template["spec"]["containers"][0]["image"] = f"registry.example/engine:{version}"

        self.cluster.edit(ROLLOUTS, NAME, change)
        self.simulation.settle()

    def change(self, **spec: Any) -> None:
        """Merge into the spec."""
        self.cluster.patch(ROLLOUTS, NAME, {"spec": spec})
        self.simulation.settle()

    def say(self, **status: Any) -> None:
        """Merge into the status, as the plugin's actions do."""
        self.cluster.patch(ROLLOUTS, NAME, {"status": status}, subresource="status")
        self.simulation.settle()

    def resume(self) -> None:
        """`promote` of a paused Rollout."""
        self.say(pauseConditions=None)

    def abort(self) -> None:
        self.say(abort=True)

    def promote_full(self) -> None:
        self.say(promoteFull=True)
