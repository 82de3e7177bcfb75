"""Nobody's answer is lost when an engine is told to end. The server is a stand-in; process 1 and the gate are real."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.engines.engine_image import Process1, open_streams, until_open, until_refused, write_engine_root
from fakes.engines.stand_in_vllm import UNTIL
from fakes.waiting import until

Start = Callable[..., Process1]

STREAMS = 50
TOKENS = 40
PACE = 0.05


def whole(events: list[str]) -> bool:
    """Whether a stream, as its client saw it, was not cut."""
    return events[-1] == "data: [DONE]" and len(events) == TOKENS + 1


def error_of(events: list[str]) -> dict[str, object]:
    """The error that a stream ended with."""
    name, data = events[-2:]
    assert name == "event: error"
    error: dict[str, object] = json.loads(data.removeprefix("data: "))["error"]
    return error


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_engine_root(tmp_path, arguments=[f"--pace={PACE}"])


async def test_fifty_open_streams_finish_and_new_requests_are_refused(root: Path, start: Start, tmp_path: Path) -> None:
    engine, go = start(root).until_ready(), tmp_path / "go"
    async with engine.users() as client:
        streams = await open_streams(client, STREAMS, max_tokens=TOKENS, prompt=f"{UNTIL}{go}")
        engine.terminate()
        refused = await until_refused(client)
        # However busy the machine is, none of them ended before new ones were refused.
        go.touch()
        received = await asyncio.gather(*streams)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.headers["connection"] == "close"
    assert "being stopped" in refused.json()["error"]["message"]
    assert [events for events in received if not whole(events)] == []
    assert engine.wait() == 0
    drained = engine.event("drained")
    # One who asked just before is finished too.
    assert drained["finished"] >= STREAMS
    assert (drained["cut"], drained["stuck"]) == (0, 0)


async def test_past_the_grace_period_the_rest_ends_with_an_error(root: Path, start: Start) -> None:
    engine = start(root, "--grace", "1").until_ready()
    async with engine.users() as client:
        slow = await open_streams(client, 10, max_tokens=1000)
        hung = asyncio.create_task(client.post("/v1/completions", json={"prompt": "hang", "max_tokens": 1}))
        await until_open(client, 11)
        quick = await open_streams(client, 1, max_tokens=10)
        engine.terminate()
        ended = await asyncio.gather(*slow)
        answer = await hung
        assert (await quick[0])[-1] == "data: [DONE]"
    for events in ended:
        assert error_of(events)["code"] == 503
        assert "data: [DONE]" not in events
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert engine.wait() == 8
    drained = engine.event("drained")
    assert (drained["cut"], drained["stuck"]) == (11, 0)


@pytest.mark.slow(reason="an engine lingers for some seconds")
async def test_who_has_not_heard_yet_still_gets_an_answer_while_the_engine_lingers(root: Path, start: Start) -> None:
    engine = start(root, "--linger", "2").until_ready()
    async with engine.users() as client:
        # Without it the engine would be gone before anybody can be refused.
        open_stream = (await open_streams(client, 1, max_tokens=120))[0]
        engine.terminate()
        while (await client.get("/tidegate/ready")).status_code != 503:
            await asyncio.sleep(0.02)
        late = await client.post("/v1/completions", json={"prompt": "late", "max_tokens": 1})
        assert (late.status_code, late.headers["connection"]) == (200, "close")
        assert (await until_refused(client)).status_code == 503
        assert (await open_stream)[-1] == "data: [DONE]"
    assert engine.wait() == 0


async def test_a_second_signal_cuts_short_what_the_first_one_drains(root: Path, start: Start) -> None:
    engine = start(root).until_ready()
    async with engine.users() as client:
        streams = await open_streams(client, 2, max_tokens=1000)
        engine.terminate()
        await until_refused(client)
        engine.terminate()
        assert [error_of(events)["code"] for events in await asyncio.gather(*streams)] == [503, 503]
    assert engine.wait() == 8


async def test_the_end_of_an_engine_that_only_starts_is_no_failure(root: Path, start: Start) -> None:
    engine = start(root, vllm=["--load-seconds=60"])
    while not engine.family():
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    engine.terminate()
    assert engine.wait() == 0


@pytest.mark.parametrize("ready", [True, False])
def test_nothing_outlives_a_process_1_that_is_killed(root: Path, start: Start, ready: bool) -> None:
    engine = start(root, vllm=[] if ready else ["--load-seconds=60"])
    if ready:
        engine.until_ready()
    while len(family := engine.family()) < 2:
        time.sleep(0.05)
    os.kill(engine.process.pid, signal.SIGKILL)
    engine.wait()
    until("all have ended", lambda: not any(map(lives, family)))


def lives(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
