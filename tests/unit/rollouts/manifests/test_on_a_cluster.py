"""The rendered objects at work: on a cluster with Argo Rollouts, from a first version through a second one's trial."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.argo.simulation import Simulation
from fakes.clock import SimulatedTime
from fakes.fleet import read_fleet, release
from fakes.kube.cluster import FakeCluster

from rollouts.argo.state import RolloutPhase, phase_of
from rollouts.cluster.routes import HttpRoutes, VirtualServices
from rollouts.kube.resources import PODS, ROLLOUTS, SERVICES, resource_of
from rollouts.manifests.ownership import with_preserved_fields
from rollouts.manifests.render import render
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH, VERSION

GOLDEN = Path(__file__).parents[3] / "golden/manifests"
NAME = "support-llm"
ACCELERATORS = {"canary": "nvidia-l40s", "istio": "nvidia-h100-80gb", "keda": "nvidia-a100-80gb", "hpa": "nvidia-l4"}


class Stage:
    """One region's cluster, to which versions are applied as a delivery does."""

    def __init__(self, case: str) -> None:
        self.fleet: ArgoFleetSpec = read_fleet((GOLDEN / case / "fleet.yaml").read_text())
        self.time = SimulatedTime()
        self.cluster = FakeCluster(time=self.time, namespace="serving")
        self.simulation = Simulation(self.cluster)
        self._accelerator = ACCELERATORS.get(case, "cpu")

    def apply(self, version: str) -> None:
        for each in render(self.fleet, release(version=version, accelerator=self._accelerator)):
            live = self.cluster.find(resource_of(each), each["metadata"]["name"])
            said = with_preserved_fields(each, live) if live else each
            self.cluster.apply(resource_of(each), said, manager="tidegate", force=True)
        self.time.advance(300)

    def go_on(self) -> None:
        """As `kubectl argo rollouts promote`."""
        self.cluster.patch(ROLLOUTS, NAME, {"status": {"pauseConditions": None}}, subresource="status")
        self.time.advance(300)

    @property
    def rollout(self) -> Json:
        return self.cluster.get(ROLLOUTS, NAME)

    @property
    def phase(self) -> RolloutPhase:
        return phase_of(self.rollout).phase

    @property
    def weight(self) -> int:
        kind = VirtualServices() if self.fleet.traffic == "istio" else HttpRoutes()
        return kind.weight(self.cluster.get(kind.resource, NAME), NAME)

    def engines(self, version: str) -> int:
        return len([pod for pod in self.cluster.list(PODS) if pod["metadata"]["labels"].get(VERSION) == version])

    def hashes(self) -> set[str]:
        """Which pods the two Services choose."""
        services = [self.cluster.get(SERVICES, f"{NAME}-{role}") for role in ("stable", "canary")]
        return {service["spec"]["selector"][POD_TEMPLATE_HASH] for service in services}


@pytest.mark.parametrize("case", ["keda", "hpa", "blue-green"])
def test_the_first_version_serves_at_once(case: str) -> None:
    stage = Stage(case)
    stage.apply("7")
    assert stage.phase is RolloutPhase.HEALTHY
    assert len(stage.hashes()) == 1


@pytest.mark.parametrize("case", ["canary", "istio"])
def test_the_second_is_tried_weight_by_weight_and_never_has_too_few_engines(case: str) -> None:
    stage = Stage(case)
    stage.apply("7")
    before = stage.engines("7")
    stage.apply("8")
    seen = [stage.weight]
    assert stage.phase is RolloutPhase.PAUSED
    assert len(stage.hashes()) == 2
    while stage.phase is RolloutPhase.PAUSED and len(seen) < 5:
        stage.go_on()
        seen.append(stage.weight)
        assert stage.engines("8") * 100 >= seen[-1] * before
    assert seen[:4] == [0, 5, 25, 50]
    assert stage.phase is RolloutPhase.HEALTHY
    assert len(stage.hashes()) == 1


def test_repeated_in_the_middle_nothing_moves() -> None:
    stage = Stage("canary")
    stage.apply("7")
    stage.apply("8")
    stage.go_on()
    before = stage.hashes(), stage.weight, stage.engines("8")
    stage.apply("8")
    assert (stage.hashes(), stage.weight, stage.engines("8")) == before
