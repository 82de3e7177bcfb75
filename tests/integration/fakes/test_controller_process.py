"""The controller as a process next to a served cluster in memory, which runs ReplicaSets and pods itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.argo.separate import ControllerProcess
from fakes.argo.simulation import Simulation
from fakes.clock import RealTime
from fakes.clusters.region import NAMESPACE, ClusterRegion, an_image
from fakes.kube.server import FakeServers, serving

from rollouts.kube.resources import PODS, REPLICA_SETS
from rollouts.model import RegionPhase
from tidegate.testing import versions

REGION = "eu-west-1"


@pytest.fixture
def region() -> ClusterRegion:
    return ClusterRegion(REGION, time=RealTime())


@pytest.fixture
def servers(region: ClusterRegion, tmp_path: Path) -> Iterator[FakeServers]:
    with serving({REGION: region.api}, tmp_path, namespace=NAMESPACE) as servers:
        servers.do(lambda: Simulation(region.cluster, start_seconds=0.2, works_on=(REPLICA_SETS, PODS)))
        yield servers


@pytest.mark.slow(reason="two processes start one after the other")
async def test_killed_with_users_on_a_canary_it_goes_on_where_it_was(
    region: ClusterRegion, servers: FakeServers, tmp_path: Path
) -> None:
    process = ControllerProcess(NAMESPACE, tmp_path / "log", context=REGION, kubeconfig=servers.kubeconfig)
    await process.start()
    for version in ("1", "2"):
        servers.run(region.fleet.deploy(an_image(version)))
    servers.run(region.fleet.shift(50))
    await process.kill()
    servers.do(region.abort_by_hand)
    assert region.splits[-1] == (50, 0)
    await process.start()
    # Its requests fail for a while, as when the API server is upgraded.
    servers.vanish(REGION)
    servers.come_back(REGION)
    state = servers.run(region.fleet.rollback("1"))
    assert (state.phase, versions(state), region.splits[-1]) == (RegionPhase.STEADY, ("1", None, None), (0, 0))
    assert await process.end() in (0, None), process.log


@pytest.mark.slow(reason="a process starts")
async def test_what_it_cannot_do_is_one_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text("apiVersion: v1\nkind: Config\n")
    process = ControllerProcess(NAMESPACE, tmp_path / "log", context="none", kubeconfig=nowhere)
    with pytest.raises(AssertionError):
        await process.start()
    assert await process.ended() == 1
    assert process.log.startswith("rollouts controller: ") and process.log.count("\n") == 1
