"""A whole delivery of engines over several nodes: the same stages and gates, and users that tidegate itself moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.clusters.multi_node import MultiNodeRegion
from fakes.clusters.region import Endpoints, a_fleet
from fakes.clusters.world import ClusterWorld, demo_on_clusters
from fakes.delivery.world import CHALLENGER, CHAMPION

from pipelines.model import Ending
from tidegate.testing import versions

REGIONS = ("eu-west-1", "us-east-1")


class GroupsWorld(ClusterWorld):
    """Two regions of LeaderWorkerSets, one after the other."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, demo_on_clusters(*((region,) for region in REGIONS)))
        spec = a_fleet(*REGIONS, multi_node={"size": 2})
        self.regions = {
            name: MultiNodeRegion(name, spec=spec, time=self.time, users_per_second=20.0) for name in REGIONS
        }
        self.watched = [Endpoints(region.cluster) for region in self.regions.values()]


@pytest.fixture
def world(tmp_path: Path) -> GroupsWorld:
    return GroupsWorld(tmp_path)


def states(world: GroupsWorld) -> dict[str, str]:
    return {name: region.versions()[0] for name, region in world.regions.items()}


def unharmed(world: GroupsWorld) -> bool:
    return all((each.lost, each.misled) == ([], []) for each in world.watched)


async def test_it_reaches_every_region_through_copies_and_weights(world: GroupsWorld) -> None:
    result = await world.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    assert states(world) == dict.fromkeys(REGIONS, CHALLENGER)
    for region in world.regions.values():
        assert region.splits == [(0, 0), (0, 100), (0, 0), (50, 0), (0, 0)], region.region
        assert versions(await region.fleet.observe()) == (CHALLENGER, None, CHAMPION)
    assert unharmed(world)


async def test_a_worse_version_takes_the_regions_before_back(world: GroupsWorld) -> None:
    last = REGIONS[-1]
    world.when(f"canary@{last}/50", "started", lambda: world.evidence.serves("canary", CHALLENGER, failed=0.5))
    result = await world.deliver()
    assert result.ending is Ending.ROLLED_BACK
    assert result.reason.startswith(f"canary@{last}/50: gate errors: ")
    assert states(world) == dict.fromkeys(REGIONS, CHAMPION)
    for region in world.regions.values():
        state = await region.fleet.observe()
        assert (versions(state), state.weight, state.mirror, state.problem) == ((CHAMPION, None, None), 0, 0, None)
        assert region.sets_of(CHALLENGER) == []
    assert unharmed(world)
