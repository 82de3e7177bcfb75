"""What a compile cache is worth: cold, built and eager starts in turn, answers and log-probabilities, as JSON.

    .venv/bin/python benchmarks/engine_start.py MODEL --runs 5 --state .tidegate/bench > result.json

`MODEL` is a Hugging Face directory. Its engine is built first, or found in `--state`. A cold start has no compile
cache, a built one has the engine's, an eager one compiles nothing. `seconds` is from the start of the process to its
first answers, `init_seconds` is vLLM's own initialization, the part that a compile cache shortens. For speed,
a built and an eager engine are both up and asked in turn; the client shares the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from figures import machine
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.vllm_runner import MUST_LOAD, CompletionScorer, VllmRunner
from engine_images.build.builder import Builder, build_request
from engine_images.build.engine_root import serve, write_root
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.build.proof import ScoredPrompt
from engine_images.manifest import EngineManifest, ModelContract
from engine_images.model import LaunchCommand
from engine_images.ports import StartAttempt
from engine_images.spec import EngineSettings
from pipelines.adapters.local_engines import BuildServers
from registry.model_files import digest_files, whole_digest
from tidegate.core.clock import SystemClock

NAME = "bench"
REQUESTS = {1: 8, 4: 16, 8: 24}
"""Of each round, by how many streams are open at a time."""
TOKENS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a compile cache is worth.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=5, help="starts of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="of speed, compiled and eager in turn")
    parser.add_argument("--state", type=Path, default=Path(".tidegate/bench"))
    arguments = parser.parse_args()
    print(
        json.dumps(
            asyncio.run(measure(arguments.model, arguments.state, runs=arguments.runs, rounds=arguments.rounds)),
            indent=2,
        )
    )


async def measure(model: Path, state: Path, *, runs: int, rounds: int) -> dict[str, Any]:
    order, servers, store = order_of(model), BuildServers(SystemClock(), name=NAME), EngineStore(state)
    built = await Builder(store, VllmRunner(servers, CompletionScorer())).build(order, say)
    cold_root = state.absolute() / "cold"
    write_root(cold_root, EngineManifest(engine="cold", model=order.model, launch=order.launch), order.folder, None)
    ways = (
        Way("cold", cold_root),
        Way("built", built.root, environment=MUST_LOAD),
        Way("eager", built.root, arguments=("--enforce-eager",)),
    )
    runner = VllmRunner(servers, Nothing())
    folder, starts = state.absolute() / "starts", {way.what: list[dict[str, Any]]() for way in ways}
    for run in range(runs):
        for way in ways:
            say(f"{way.what} start {run + 1} of {runs}")
            started = (await runner.start(order, way.root, way.attempt(folder))).start
            starts[way.what].append(
                {
                    "seconds": round(started.seconds, 1),
                    "init_seconds": started.log.init_seconds,
                    "loaded": started.log.loaded,
                    "memory_mib": started.memory_bytes >> 20,
                }
            )
    speed = await compared(ways[1:], order, servers, folder, rounds)
    return {
        "machine": machine(),
        "build": record(built),
        "starts": starts,
        "medians": medians(starts) if runs else {},
        "speed": speed,
    }


@dataclass(frozen=True)
class Way:
    """One way to start an engine."""

    what: str
    root: Path
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def attempt(self, folder: Path) -> StartAttempt:
        return StartAttempt(f"{self.what} start", folder, folder / self.what, self.arguments, self.environment)

    def launch(self, order: BuildRequest, folder: Path) -> LaunchCommand:
        run = folder / self.what
        shutil.rmtree(run, ignore_errors=True)
        return serve(order, self.root, run, arguments=self.arguments, environment=self.environment)


class Nothing:
    """A `Scorer` for starts of which only the time counts."""

    async def score(self, _url: str, _model: str, _prompts: Sequence[str]) -> tuple[ScoredPrompt, ...]:
        return ()


async def compared(
    ways: Sequence[Way], order: BuildRequest, servers: BuildServers, folder: Path, rounds: int
) -> dict[str, dict[str, Any]]:
    """All engines are up, and one works at a time, so that what else the machine does meets each alike."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {way.what: {} for way in ways}
    async with AsyncExitStack() as stack:
        clients = {}
        for way in ways:
            server = await servers.start(way.launch(order, folder), folder / f"{way.what}.log")
            stack.push_async_callback(server.stop)
            clients[way.what] = await stack.enter_async_context(
                AsyncOpenAI(
                    base_url=f"{server.url}/v1", api_key="none", http_client=DefaultAsyncHttpxClient(trust_env=False)
                )
            )
        for turn in range(rounds):
            say(f"speed, round {turn + 1} of {rounds}")
            for streams, requests in REQUESTS.items():
                for what, client in clients.items():
                    measured = await side_by_side(client, order.prompts, streams, requests, first=turn * requests)
                    found[what].setdefault(f"{streams} streams", []).append(measured)
    return {what: {streams: summed_up(each) for streams, each in per.items()} for what, per in found.items()}


def summed_up(rounds: list[dict[str, float]]) -> dict[str, Any]:
    return {
        name: {"median": median(each[name] for each in rounds), "all": [each[name] for each in rounds]}
        for name in rounds[0]
    }


async def side_by_side(
    client: AsyncOpenAI, prompts: Sequence[str], streams: int, requests: int, *, first: int
) -> dict[str, float]:
    gate, firsts = asyncio.Semaphore(streams), []
    tokens = 0

    async def one(number: int) -> None:
        nonlocal tokens
        async with gate:
            began = time.perf_counter()
            answered = None
            async for _ in await client.completions.create(
                model=NAME,
                # Each its own: a prefix that is cached costs nothing.
                prompt=f"{streams}, {number}: {prompts[number % len(prompts)]}",
                max_tokens=TOKENS,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            ):
                answered = answered or time.perf_counter() - began
                tokens += 1
            firsts.append(answered or 0.0)

    began = time.perf_counter()
    await asyncio.gather(*map(one, range(first, first + requests)))
    seconds = time.perf_counter() - began
    return {"tokens_per_second": round(tokens / seconds, 1), "ttft_p50_ms": round(1000 * median(firsts), 1)}


def order_of(model: Path) -> BuildRequest:
    environment, files = find_engine_environment(), digest_files(model)
    settings = EngineSettings.model_validate(
        {"vllm": {"version": environment.vllm, "args": {"max-model-len": 512, "dtype": "float32"}}}
    )
    contract = ModelContract(name=NAME, version="1", digest=whole_digest(files), files=files)
    return build_request(contract, model, settings, environment, name=NAME)


def medians(starts: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    seconds = {what: median(start["seconds"] for start in found) for what, found in starts.items()}
    init = {what: median(start["init_seconds"] for start in found) for what, found in starts.items()}
    return {
        "cold_over_built": round(seconds["cold"] / seconds["built"], 2),
        "built_over_eager": round(seconds["built"] / seconds["eager"], 2),
        "cold_over_built_init": round(init["cold"] / init["built"], 1),
    }


def record(built: BuiltEngine) -> dict[str, Any]:
    agreement = built.record.agreement
    assert agreement is not None, "a compiled engine was compared"
    return {"engine": built.engine, "tolerance": built.record.tolerance, **agreement.model_dump()}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
