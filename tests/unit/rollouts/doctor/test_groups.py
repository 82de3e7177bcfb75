"""Engines over several nodes: what the doctor sees of them, and says that it does not see."""

from __future__ import annotations

import pytest
from fakes.clusters.doctor_region import GUARD_IMAGE
from fakes.clusters.multi_node import MultiNodeRegion, an_image_of_nodes
from fakes.clusters.region import NAME

from rollouts.doctor.diagnosis import diagnose
from rollouts.doctor.gather import DiagnosisTarget, required_access
from rollouts.doctor.model import Finding
from rollouts.kube.resources import LEADER_WORKER_SETS, PODS

pytestmark = pytest.mark.long


@pytest.fixture
def region() -> MultiNodeRegion:
    return MultiNodeRegion()


async def found(region: MultiNodeRegion, *, guard: str = "") -> dict[str, Finding]:
    target = DiagnosisTarget(
        region=region.region,
        delivery=NAME,
        multi_node=True,
        guard=guard,
        rights=required_access(region.spec, NAME, region.region),
    )
    return {each.code: each for each in await diagnose(region.client(), None, target, region.time)}


async def test_engines_that_serve_are_well(region: MultiNodeRegion) -> None:
    await region.open().deploy(an_image_of_nodes("1"))
    assert (await found(region)).keys() == {"groups-less-seen", "no-guard"}


async def test_engines_that_are_not_ready_are_told_with_their_own_words(region: MultiNodeRegion) -> None:
    await region.open().deploy(an_image_of_nodes("1"))
    region.simulation.unschedulable("1")
    for pod in region.cluster.list(PODS, labels="leaderworkerset.sigs.k8s.io/worker-index=0"):
        region.cluster.delete(PODS, pod["metadata"]["name"])
    await region.time.sleep(5)
    finding = (await found(region))["groups-not-ready"]
    assert finding.what.startswith("LeaderWorkerSet support-llm-")
    assert finding.what.endswith("has 0 of 2 engines ready")
    assert "3 Insufficient nvidia.com/gpu" in finding.evidence[0]


async def test_a_cluster_without_the_definition(region: MultiNodeRegion) -> None:
    region.cluster.uninstall(LEADER_WORKER_SETS)
    assert "leaderworkersets.leaderworkerset.x-k8s.io" in (await found(region))["crd-missing"].what


async def test_a_guard_that_was_never_applied(region: MultiNodeRegion) -> None:
    assert "guard-absent" in await found(region, guard=GUARD_IMAGE)
