"""A fleet on Kubernetes keeps the promises of a fleet, no matter who splits its users."""

from __future__ import annotations

import math

import pytest
from fakes.clusters.region import ClusterRegion, a_fleet, an_image

from rollouts.cluster.fleet import ArgoFleet
from rollouts.model import Engine
from tidegate.testing import FleetContract, MakeEngine


class OfAClusterRegion(FleetContract):
    @pytest.fixture
    def region(self) -> ClusterRegion:
        return ClusterRegion()

    @pytest.fixture
    def fleet(self, region: ClusterRegion) -> ArgoFleet:
        return region.fleet

    @pytest.fixture
    def engine(self) -> MakeEngine:
        return an_image

    @pytest.fixture
    def broken(self, region: ClusterRegion) -> MakeEngine:
        def make(version: str) -> Engine:
            region.simulation.crash(version, last_words="torch.OutOfMemoryError: CUDA out of memory")
            return an_image(version)

        return make


class TestBehindTheGatewayApi(OfAClusterRegion):
    pass


class TestWithAControllerThatLosesWrites(OfAClusterRegion):
    """Argo Rollouts up to 1.9.1 (argo-rollouts#4073): every first one of tidegate's after its own."""

    @pytest.fixture
    def region(self) -> ClusterRegion:
        region = ClusterRegion()
        region.simulation.loses_writes_within = math.inf
        return region


class TestBehindIstio:
    """The promises in which users or copies move: all else is the same code."""

    engine = OfAClusterRegion.engine
    fleet = OfAClusterRegion.fleet

    @pytest.fixture
    def region(self) -> ClusterRegion:
        return ClusterRegion(spec=a_fleet("eu-west-1", traffic="istio"))

    test_traffic_moves_and_is_copied = FleetContract.test_traffic_moves_and_is_copied
    test_a_promotion_keeps_the_old_stable_warm = FleetContract.test_a_promotion_keeps_the_old_stable_warm
    test_a_rollback_takes_the_canary_away = FleetContract.test_a_rollback_takes_the_canary_away
    test_a_rollback_after_a_promotion_swaps_back = FleetContract.test_a_rollback_after_a_promotion_swaps_back
