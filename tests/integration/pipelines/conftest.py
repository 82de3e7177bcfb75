"""A real fleet host, with Envoy and Prometheus, in front of engines that start in a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.engines.local_fleet import REGION, delivery

from rollouts.adapters import host_client
from rollouts.adapters.host_client import FleetHost


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FleetHost]:
    state = tmp_path / "state"
    with delivery(state):
        host = await host_client.start(state, {REGION: None}, owned=True)
        yield host
        await host.stop()
