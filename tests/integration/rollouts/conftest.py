"""A real fleet host with real Envoys and Prometheus, in front of engines that start in a second."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from fakes.engines.local_fleet import REGION, fleet_host, stand_in

from rollouts.adapters.host_client import FleetHost, LocalRegionClient
from rollouts.model import Engine


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def engine() -> Callable[[str], Engine]:
    return stand_in


@pytest.fixture
def broken() -> Callable[[str], Engine]:
    return lambda version: stand_in(version, "--fail", "out of memory")


@pytest.fixture
async def host(state: Path) -> AsyncIterator[FleetHost]:
    async with fleet_host(state) as host:
        yield host


@pytest.fixture
def fleet(host: FleetHost) -> LocalRegionClient:
    return host.fleet(REGION)
