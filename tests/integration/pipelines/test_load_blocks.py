"""Blocks of load as the real Locust brings them, and as the fake does that unit tests have in its place."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import psutil
import pytest
from fakes.delivery.loads import FakeLoads
from fakes.services.chat_servers import WORDS, FakeChatServer, chat_server

from gates.evidence.request_record import RequestRecord
from pipelines.adapters.load.process import LocustLoads
from pipelines.load import LoadOrder, arm_load, plain_requests
from tidegate.core.errors import OutsideError
from tidegate.testing import FakeClock

REQUESTS = plain_requests([f"How much is {number} and 1?" for number in range(20)], 4)


@pytest.fixture
def server() -> Iterator[FakeChatServer]:
    with chat_server() as running:
        yield running


def order(url: str, **changes: object) -> LoadOrder:
    given = {"url": url, "model": "m", "region": "eu", "role": "canary", "version": "7", "seconds": 2, "seed": 5}
    return LoadOrder.model_validate({**given, **({} if "rate" in changes else {"concurrency": 3}), **changes})


async def brought(loads: LocustLoads | FakeLoads, order: LoadOrder, *, processes: int = 1) -> Sequence[RequestRecord]:
    return await loads.block("load@eu", order, REQUESTS, processes=processes)


@pytest.mark.parametrize("kind", ["real", "fake"])
@pytest.mark.slow(reason="Locust's processes")
async def test_a_block_returns_its_own_requests_all_of_which_have_ended(
    tmp_path: Path, server: FakeChatServer, kind: str
) -> None:
    loads = LocustLoads(tmp_path) if kind == "real" else FakeLoads(tmp_path, FakeClock(), {server.url: 20.0})
    first = await brought(loads, order(server.url), processes=2)
    again = await brought(loads, order(server.url, role="stable", version="6"), processes=2)
    assert {(each.role, each.version, each.region) for each in first} == {("canary", "7", "eu")}
    assert {(each.role, each.version, each.region) for each in again} == {("stable", "6", "eu")}
    for each in (*first, *again):
        assert each.ok and each.output_tokens == len(WORDS) and each.ttft_seconds is not None
    found = arm_load(first, engines=1, engine_hour=None)
    assert found is not None and 1.0 < found.seconds < 30.0


FAILURES = {"refuse": "status", "cut": "cut", "mid-error": "protocol", "vanish": "connect"}


@pytest.mark.slow(reason="Locust's processes")
async def test_arms_get_the_same_requests_and_each_failure_has_its_class(
    tmp_path: Path, server: FakeChatServer
) -> None:
    loads, sent = LocustLoads(tmp_path), list[list[str]]()
    for _ in range(2):
        server.bodies.clear()
        records = await brought(loads, order(server.url, concurrency=1))
        sent.append([body["messages"][0]["content"] for body in server.bodies])
    shorter = min(map(len, sent))
    assert shorter >= 5
    assert sent[0][:shorter] == sent[1][:shorter]
    # The first token is timed while the stream arrives.
    first = median(each.ttft_seconds or 0.0 for each in records)
    whole = median(each.duration_seconds for each in records)
    assert server.token_seconds <= first < whole - 2 * server.token_seconds
    for model, error in FAILURES.items():
        failed = await brought(loads, order(server.url, model=model, concurrency=1, seconds=1))
        assert failed and {each.error for each in failed} == {error}
        # An engine that refuses at once is not asked in a busy loop.
        assert len(failed) < 10


@pytest.mark.long
@pytest.mark.slow(reason="Locust's processes")
async def test_a_rate_arrives_whatever_becomes_of_the_answers(tmp_path: Path, server: FakeChatServer) -> None:
    loads = LocustLoads(tmp_path)
    steady = await brought(loads, order(server.url, rate=40.0), processes=2)
    spike = await brought(loads, order(server.url, rate=40.0, shape="spike", seconds=3), processes=2)
    assert len(steady) == pytest.approx(80, abs=45)
    began = min(each.started for each in spike)
    thirds = Counter(min(int(each.started - began), 2) for each in spike)
    assert thirds[1] > 1.5 * thirds[0] and thirds[1] > 1.5 * thirds[2]


@pytest.mark.long
@pytest.mark.slow(reason="Locust's processes")
async def test_a_silent_engine_ends_with_the_patience_of_its_requests(tmp_path: Path, server: FakeChatServer) -> None:
    hangs = order(server.url, model="hang", concurrency=1, seconds=1)
    records = await brought(LocustLoads(tmp_path, timeout_seconds=0.4), hangs)
    assert {each.error for each in records} == {"timeout"}


@pytest.mark.slow(reason="Locust's processes")
async def test_a_process_that_dies_is_told_and_none_stays(tmp_path: Path, server: FakeChatServer) -> None:
    block = asyncio.create_task(brought(LocustLoads(tmp_path), order(server.url, seconds=60)))
    while not server.bodies:
        await asyncio.sleep(0.05)
    (worker,) = [each for each in psutil.Process().children() if "locust" in " ".join(each.cmdline())]
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(OutsideError, match="the load ended with code -9"):
        await block
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
