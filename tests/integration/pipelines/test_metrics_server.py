"""A delivery's numbers over real HTTP: what promtool and Prometheus' own parser make of them, and how they end."""

from __future__ import annotations

import asyncio
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterable, Iterator

import pytest
from fakes.delivery.records import delivered
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from pipelines.adapters.metrics_server import MetricsServer
from pipelines.events.state import state_of
from pipelines.views.metrics import families
from tidegate.core.errors import OutsideError

STORY = state_of(delivered())


def numbers() -> Iterator[Metric]:
    return families(STORY, delivery="d1")


@pytest.fixture
async def server() -> AsyncIterator[MetricsServer]:
    server = MetricsServer(numbers)
    yield server
    await server.close()


def read(server: MetricsServer) -> str:
    with urllib.request.urlopen(f"{server.address}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def values(metrics: Iterable[Metric]) -> dict[tuple[object, ...], float]:
    samples = [sample for family in metrics for sample in family.samples]
    return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}


async def scrape(server: MetricsServer) -> str:
    return await asyncio.to_thread(read, server)


async def test_what_is_served_is_what_promtool_wants(server: MetricsServer) -> None:
    text = await scrape(server)
    check = await asyncio.create_subprocess_exec(
        "promtool", "check", "metrics", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await check.communicate(text.encode())
    assert (check.returncode, said.decode()) == (0, "")


async def test_what_is_served_is_the_story_and_nothing_else(server: MetricsServer) -> None:
    assert values(text_string_to_metric_families(await scrape(server))) == values(numbers())


async def test_a_port_that_is_taken_is_told(server: MetricsServer) -> None:
    with pytest.raises(OutsideError, match=r"cannot serve metrics at 127\.0\.0\.1:") as caught:
        MetricsServer(numbers, port=int(server.address.rpartition(":")[2]))
    assert caught.value.hint == "name another --metrics-address"


async def test_nobody_is_waited_for_who_never_read(server: MetricsServer) -> None:
    await asyncio.wait_for(server.read_once_more(), timeout=0.05)
    await scrape(server)
    await asyncio.wait_for(server.read_once_more(), timeout=0.05)


async def test_who_reads_gets_the_last_numbers(server: MetricsServer) -> None:
    for _ in range(2):
        await scrape(server)
        await asyncio.sleep(0.4)
    waiting = asyncio.create_task(server.read_once_more())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await scrape(server)
    await asyncio.wait_for(waiting, timeout=20)


async def test_two_scrapes_at_once_after_a_late_one_do_not_make_it_impatient(server: MetricsServer) -> None:
    await scrape(server)
    await asyncio.sleep(2)
    for _ in range(2):
        await scrape(server)
    waiting = asyncio.create_task(server.read_once_more())
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await scrape(server)
    await asyncio.wait_for(waiting, timeout=20)


async def test_who_reads_no_more_is_not_waited_for_long(server: MetricsServer) -> None:
    for _ in range(2):
        await scrape(server)
        await asyncio.sleep(0.2)
    await asyncio.wait_for(server.read_once_more(), timeout=2)


async def test_nothing_listens_when_it_is_closed() -> None:
    server = MetricsServer(numbers)
    await server.close()
    with pytest.raises(OSError, match="refused"):
        await scrape(server)
