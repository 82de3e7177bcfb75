"""A delivery through Argo Rollouts: three clusters, wave after wave; every region gets it or none does."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.cluster_world import REGIONS, ClusterWorld
from fakes.world import CHALLENGER, CHAMPION

from pipelines.model import Ending
from tidegate.core.errors import ExitCode

EVERYWHERE = dict.fromkeys(REGIONS, CHALLENGER)
NOWHERE = dict.fromkeys(REGIONS, CHAMPION)


@pytest.fixture
def world(tmp_path: Path) -> ClusterWorld:
    return ClusterWorld(tmp_path)


async def test_the_demo_reaches_every_region_wave_after_wave(world: ClusterWorld) -> None:
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.DELIVERED, ExitCode.DELIVERED), result.reason
    assert world.stable_versions() == EVERYWHERE
    planned = [step.id for step in world.plan.steps]
    assert world.said("started") == ["delivery", *planned]
    assert world.said("done") == planned
    assert world.registry.champion == CHALLENGER
