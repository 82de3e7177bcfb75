"""The same promises with a real vLLM behind the gate."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.engines.engine_image import Process1, open_streams, until_refused, write_engine_root
from fakes.waiting import until

from engine_images.adapters.environment import find_engine_environment
from engine_images.entrypoint.journal import Died
from tidegate.testing import write_tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.long]

Start = Callable[..., Process1]
STREAMS = 50
TOKENS = 1600
"""So many that no answer is complete, on a machine however busy, before the next question was refused."""

ARGUMENTS = (
    *("--model", "model", "--served-model-name", "tiny", "--load-format", "safetensors"),
    *("--shutdown-timeout", "30", "--enforce-eager", "--dtype=float32", "--max-model-len=2048"),
    *("--max-num-seqs=64", "--kv-cache-memory-bytes=134217728"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    model = write_tiny_model(tmp_path)
    return write_engine_root(tmp_path, model=model, arguments=ARGUMENTS, environment=environment, warm_up=[1, 8])


@pytest.fixture
def start_vllm(start: Start) -> Start:
    python = find_engine_environment().python
    return lambda root, *options, **others: start(root, *options, python=python, server=None, **others)


def text_of(lines: list[str]) -> str:
    """What the events of a stream say; vLLM puts several tokens into one when a client lags."""
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    return "".join(event["choices"][0]["text"] for event in events)


async def test_fifty_streams_of_vllm_finish_and_new_requests_are_refused(root: Path, start_vllm: Start) -> None:
    # On a busy machine they take longer than half a minute, the usual time.
    engine = start_vllm(root, "--grace", "180").until_ready()
    async with engine.users() as client:
        status = (await client.get("/tidegate/status")).json()
        assert (status["state"], status["model"]["version"]) == ("ready", "7")
        assert (await client.get("/tidegate/health")).json()["healthy"]
        metrics = (await client.get("/metrics")).text
        assert 'tidegate_requests_total{outcome="ok"} 0.0' in metrics
        started = status["start"]
        assert 0 < started["load_seconds"] < started["start_seconds"]
        assert started["compile_cache"] == "none"
        assert 'tidegate_engine_start_seconds{compile_cache="none"}' in metrics
        streams = await open_streams(client, STREAMS, model="tiny", max_tokens=TOKENS, temperature=0)
        engine.terminate()
        refused = await until_refused(client)
        still_open = sum(not stream.done() for stream in streams)
        received = await asyncio.gather(*streams)
    assert still_open == STREAMS
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert {lines[-1] for lines in received} == {"data: [DONE]"}
    # The same prompt at temperature 0, a character a token: nothing of any answer is missing.
    assert {len(text_of(lines)) for lines in received} == {TOKENS}
    assert engine.wait() == 0
    drained = engine.event("drained")
    # One who asked just before is finished too.
    assert drained["finished"] >= STREAMS
    assert (drained["cut"], drained["stuck"]) == (0, 0)


def test_an_engine_whose_core_is_killed_ends(root: Path, start_vllm: Start) -> None:
    engine = start_vllm(root, "--threads", "2").until_ready()
    (core,) = [pid for pid in engine.family() if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"VLLM::Engine")]
    os.kill(core, signal.SIGKILL)
    assert engine.wait() == Died.code


def test_no_process_of_vllm_outlives_a_process_1_that_is_killed(root: Path, start_vllm: Start) -> None:
    engine = start_vllm(root)
    # Process 1's guard, vLLM's server and its engine core.
    while len(family := engine.family()) < 3:
        assert engine.process.poll() is None
        time.sleep(0.1)
    os.kill(engine.process.pid, signal.SIGKILL)
    engine.wait()
    until_gone(*family)


def until_gone(*pids: int) -> None:
    until("all have ended", lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))
