"""The fake fleet keeps the promises of a fleet."""

from __future__ import annotations

import pytest

from rollouts.model import Engine
from tidegate.testing import FakeFleet, FleetContract, MakeEngine, an_engine


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
