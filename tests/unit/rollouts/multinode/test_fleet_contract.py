"""A fleet of engines over several nodes keeps the promises of a fleet."""

from __future__ import annotations

import pytest
from fakes.clusters.multi_node import MultiNodeRegion, an_image_of_nodes

from rollouts.model import Engine
from rollouts.multinode.fleet import LeaderWorkerSetFleet
from tidegate.testing import FleetContract, MakeEngine

pytestmark = pytest.mark.long


class TestOfGroups(FleetContract):
    @pytest.fixture
    def region(self) -> MultiNodeRegion:
        return MultiNodeRegion()

    @pytest.fixture
    def fleet(self, region: MultiNodeRegion) -> LeaderWorkerSetFleet:
        return region.open()

    @pytest.fixture
    def engine(self) -> MakeEngine:
        return an_image_of_nodes

    @pytest.fixture
    def broken(self, region: MultiNodeRegion) -> MakeEngine:
        def make(version: str) -> Engine:
            region.simulation.crash(version, last_words="torch.OutOfMemoryError: CUDA out of memory")
            return an_image_of_nodes(version)

        return make
