"""A real fleet host with real Envoys and Prometheus, in front of engines that start in a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from fakes.engines.local_fleet import SharedHosts, fleet_host, stand_in

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


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedHosts]:
    """For tests that need a region of their own and no host."""
    hosts = SharedHosts(tmp_path_factory.mktemp("hosts"))
    yield hosts
    asyncio.run(hosts.stop())


@pytest.fixture
async def fleet(hosts: SharedHosts) -> AsyncIterator[LocalRegionClient]:
    """An empty region."""
    async with hosts.region() as (host, region):
        yield host.fleet(region)
