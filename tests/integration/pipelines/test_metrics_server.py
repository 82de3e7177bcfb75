"""A delivery's numbers over real HTTP: what promtool and Prometheus' own parser make of them, and how they end."""

from __future__ import annotations

import asyncio
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator

import pytest
from fakes.delivery.records import delivered
from prometheus_client import Metric

from pipelines.events.state import state_of
from pipelines.views.metrics import families, served_metrics
from tidegate.core.errors import OutsideError

STORY = state_of(delivered())


def numbers() -> Iterator[Metric]:
    return families(STORY, delivery="d1")


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async with served_metrics(numbers) as address:
        yield address


def read(address: str) -> str:
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


async def scrape(server: str) -> str:
    return await asyncio.to_thread(read, server)


async def test_what_is_served_is_what_promtool_wants(server: str) -> None:
    text = await scrape(server)
    check = await asyncio.create_subprocess_exec(
        "promtool", "check", "metrics", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await check.communicate(text.encode())
    assert (check.returncode, said.decode()) == (0, "")


async def test_a_port_that_is_taken_is_told(server: str) -> None:
    with pytest.raises(OutsideError, match=r"cannot serve metrics at 127\.0\.0\.1:") as caught:
        async with served_metrics(numbers, port=int(server.rpartition(":")[2])):
            pass
    assert caught.value.hint == "name another --metrics-address"


async def test_nothing_listens_when_it_is_closed() -> None:
    async with served_metrics(numbers) as address:
        await scrape(address)
    with pytest.raises(OSError, match="refused"):
        await scrape(address)
