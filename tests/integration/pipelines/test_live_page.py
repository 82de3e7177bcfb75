"""The live page over real sockets, on a ledger: what a browser is sent, when, and what ends it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest
from fakes.delivery.records import Delivery
from starlette.applications import Starlette

from pipelines.adapters import web_server
from pipelines.adapters.web_server import address_of, listening
from pipelines.views.page.routes import EVERY_SECONDS, Board, LivePage, PageLimits
from pipelines.views.page.snapshot import PageSnapshot, SnapshotReader
from registry.deliveries import MlflowDeliveries
from registry.ledger import MlflowLedger
from registry.model import ModelVersion
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError
from tidegate.testing import FakeClock, MemoryStore

MODEL = "support-llm"


class Silence:
    """Something between the page and a ledger that can make it fall silent, or slow."""

    def __init__(self, looker: SnapshotReader) -> None:
        self._looker, self.silent, self.looks = looker, False, 0

    def look(self) -> PageSnapshot:
        self.looks += 1
        if self.silent:
            raise OutsideError("no answer")
        return self._looker.look()


@pytest.fixture
def ledgers() -> MlflowDeliveries:
    return MlflowDeliveries(MemoryStore())


@pytest.fixture
def ledger(ledgers: MlflowDeliveries) -> Silence:
    ledgers.deliveries(MODEL)
    return Silence(SnapshotReader(MODEL, ledgers, lambda: (), SystemClock()))


def open_delivery(ledgers: MlflowDeliveries, version: str = "3") -> MlflowLedger:
    new, champion = (
        ModelVersion(name=MODEL, version=each, digest="d" * 64, files={}, size_bytes=1) for each in (version, "2")
    )
    opened = ledgers.open_delivery(new, champion, spec_digest="x")
    opened.append(Delivery(version, champion="2").open().events[0])
    return opened


@asynccontextmanager
async def answering(page: LivePage) -> AsyncIterator[httpx.AsyncClient]:
    """A server that ends as `tidegate serve` ends it."""
    app, end = Starlette(routes=page.routes()), asyncio.timeout(None)
    with listening("127.0.0.1", 0) as listener:
        async with end, web_server.answering(app, listener):
            try:
                async with httpx.AsyncClient(base_url=address_of(listener), timeout=30) as client:
                    yield client
            finally:
                page.stop()
                end.reschedule(asyncio.get_running_loop().time() + 5)


class Stream:
    """Events as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self.response, self._lines = response, response.aiter_lines()
        self.comments = 0

    async def next(self) -> Mapping[str, str]:
        """The next event: its id and its data."""
        fields: dict[str, str] = {}
        async for line in self._lines:
            if not line and "data" in fields:
                return fields
            name, _, value = line.partition(":")
            self.comments += line.startswith(":")
            if name in ("id", "data"):
                fields[name] = f"{fields.get(name, '')}{value.removeprefix(' ')}\n"
        raise EOFError

    async def until(self, word: str) -> Mapping[str, str]:
        while word not in (event := await self.next())["data"]:
            pass
        return event


@asynccontextmanager
async def stream(client: httpx.AsyncClient, *, last: str | None = None) -> AsyncIterator[Stream]:
    headers = {"Last-Event-ID": last} if last else {}
    async with client.stream("GET", "/events", headers=headers) as response:
        assert response.status_code == 200
        yield Stream(response)


def page_of(ledger: Silence, limits: PageLimits | None = None) -> LivePage:
    return LivePage(Board(MODEL, ledger.look, SystemClock()), lambda id: id, limits)


@pytest.mark.slow(reason="the page polls the ledger")
async def test_what_the_ledger_says_arrives_and_many_who_watch_ask_it_once(
    ledgers: MlflowDeliveries, ledger: Silence
) -> None:
    async with answering(page_of(ledger)) as client, stream(client) as one, stream(client) as two:
        assert "has not been delivered yet" in (await one.next())["data"]
        opened = await asyncio.to_thread(open_delivery, ledgers)
        for each in (one, two):
            assert "support-llm 3 is on its way" in (await each.until("on its way"))["data"]
        await asyncio.to_thread(opened.append, Delivery("3").say("build", "started").events[0])
        assert "on its way: build" in (await one.until("on its way: build"))["data"]
        before, began = ledger.looks, asyncio.get_running_loop().time()
        for _ in range(3):
            await asyncio.gather(one.next(), two.next())
        took = asyncio.get_running_loop().time() - began
        assert ledger.looks - before <= took / 2 + 2


async def test_nobody_asks_when_nobody_watches(ledger: Silence) -> None:
    async with answering(page_of(ledger)) as client:
        async with stream(client) as watched:
            await watched.next()
        # The server learns of it when it writes, and a look may be under way.
        before = ledger.looks - 1
        async with asyncio.timeout(60):
            while ledger.looks != before:
                before = ledger.looks
                await asyncio.sleep(2 * EVERY_SECONDS)


async def test_who_comes_back_is_sent_what_is_new_and_who_opens_the_page_has_it_already(
    ledgers: MlflowDeliveries, ledger: Silence
) -> None:
    opened = await asyncio.to_thread(open_delivery, ledgers)
    async with answering(page_of(ledger)) as client:
        html = (await client.get("/")).text
        seen = re.findall(r'data-events="events\?seen=(\w+)"', html)[0]
        async with stream(client) as first:
            event = await first.next()
        assert event["id"].strip() == seen
        async with stream(client, last=seen) as again:
            assert 'id="now"' not in (await again.next())["data"]
        await asyncio.to_thread(opened.append, Delivery("3").say("build", "started").events[0])
        await asyncio.sleep(EVERY_SECONDS)
        async with stream(client, last=seen) as again:
            assert 'id="now"' in (await again.next())["data"]


async def test_streams_are_counted_and_one_that_was_left_makes_room(ledger: Silence) -> None:
    async with answering(page_of(ledger, PageLimits(streams=2))) as client:
        async with stream(client) as one:
            await one.next()
            async with stream(client) as two:
                await two.next()
                refused = await client.get("/events")
                assert (refused.status_code, refused.headers["Retry-After"]) == (503, "10")
                assert (await client.get("/")).status_code == 200
        async with asyncio.timeout(10):
            while (await client.head("/events")).status_code != 200:
                await asyncio.sleep(0.1)


async def test_a_look_that_hangs_holds_up_neither_the_page_nor_a_sign_of_life() -> None:
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hangs() -> PageSnapshot:
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result(60)
        raise OutsideError("no answer")

    page = LivePage(
        Board(MODEL, hangs, FakeClock()), lambda id: id, PageLimits(patience_seconds=0.2, heartbeat_seconds=0.2)
    )
    async with answering(page) as client, stream(client) as watched:
        assert "Not looked at yet" in (await client.get("/")).text
        first = await watched.next()
        assert "Not looked at yet" in first["data"]
        asyncio.get_running_loop().call_later(0.5, released.set)
        await watched.until("MLflow has not been reached")
        assert watched.comments > 0


async def test_a_stop_ends_open_streams_at_once(ledger: Silence) -> None:
    page = page_of(ledger)
    async with answering(page) as client, stream(client) as watched:
        await watched.next()
        page.stop()
        async with asyncio.timeout(1):
            with pytest.raises(EOFError):
                while True:
                    await watched.next()
