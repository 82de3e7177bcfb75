"""A real fleet host, with Envoy and Prometheus, in front of engines that start in a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.engines.local_fleet import fleet_host

from rollouts.adapters.host_client import FleetHost


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FleetHost]:
    async with fleet_host(tmp_path / "state") as host:
        yield host
