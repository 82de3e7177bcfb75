"""The fake fleet keeps the promises of a fleet."""

from __future__ import annotations

import pytest
from fakes.fleet import FakeFleet, an_engine
from fakes.fleet_contract import FleetContract, MakeEngine

from rollouts.model import Engine


class TestFakeFleet(FleetContract):
    @pytest.fixture
    def fleet(self) -> FakeFleet:
        return FakeFleet()

    @pytest.fixture
    def engine(self) -> MakeEngine:
        return an_engine

    @pytest.fixture
    def broken(self, fleet: FakeFleet) -> MakeEngine:
        def make(version: str) -> Engine:
            fleet.refuse(version, because="out of memory")
            return an_engine(version)

        return make
