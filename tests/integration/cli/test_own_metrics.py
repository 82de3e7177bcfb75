"""A delivery's numbers in the fleet's own Prometheus: while it runs, its last word, and nothing after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from fakes.delivery.records import Delivery, delivered
from fakes.engines.local_fleet import fleet_host

from pipelines.adapters.metrics_server import MetricsServer
from pipelines.events.state import state_of
from pipelines.views.metrics import families
from rollouts.adapters.host_client import FleetHost
from rollouts.adapters.http import Http
from tidegate.app.wiring.backends import prometheus_target

PATIENCE_SECONDS = 20


class Told:
    """A story that goes on while its numbers are served."""

    def __init__(self) -> None:
        self.story = state_of(Delivery("2", champion="1").open().events)
        self.server = MetricsServer(lambda: families(self.story, delivery="d1"))


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    told = Told()
    yield told
    await told.server.close()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FleetHost]:
    async with fleet_host(tmp_path / "state") as host:
        yield host


async def values(host: FleetHost, query: str) -> list[float]:
    """What Prometheus answers."""
    async with Http() as http:
        reply = await http.get(f"{host.prometheus_url}/api/v1/query?query={quote(query)}", timeout_seconds=10)
    return [float(each["value"][1]) for each in reply.json()["data"]["result"]]


async def becomes(host: FleetHost, query: str, expected: list[float]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := await values(host, query)) != expected:
        assert time.monotonic() < deadline, f"{query} is {found}"
        await asyncio.sleep(0.2)


@pytest.mark.slow(reason="Prometheus scrapes a fleet on this machine every two seconds")
async def test_the_last_word_of_a_delivery_is_read_before_it_goes(host: FleetHost, told: Told) -> None:
    async with prometheus_target(host, "support-llm", told.server):
        await becomes(host, 'tidegate_delivery_state{state="running",version="2"}', [1])
        await becomes(host, "count_over_time(tidegate_delivery_info[1m]) > bool 2", [1])
        told.story = state_of(delivered())
    assert await values(host, 'max_over_time(tidegate_delivery_state{state="delivered"}[1m])') == [1]
    # Prometheus ends the series of a target that is gone: no dashboard shows the last delivery for ever.
    await becomes(host, "tidegate_delivery_info", [])


async def test_a_delivery_goes_on_when_nobody_can_watch_it(
    host: FleetHost, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="tidegate")
    psutil.Process(host.pid).kill()
    async with prometheus_target(host, "support-llm", told.server):
        pass
    assert "was not told where this delivery's numbers are" in caplog.text
