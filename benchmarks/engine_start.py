"""What a compile cache is worth: cold, built and eager starts in turn, answers and log-probabilities, as JSON.

    .venv/bin/python benchmarks/engine_start.py MODEL --runs 5 --state .tidegate/bench > result.json

`MODEL` is a Hugging Face directory. Its engine is built first, or found in `--state`. A cold start has no compile
cache, a built one has the engine's, an eager one compiles nothing. `seconds` is from the start of the process to its
first answers, `init_seconds` is vLLM's own initialization, the part that a compile cache shortens. Speed is measured
on the last built and the last eager engine; the client shares the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from engine_images.adapters.engine_root import serve, write_root
from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.scorer import CompletionScorer
from engine_images.adapters.shelf import Shelf
from engine_images.build.attempt import Attempt
from engine_images.build.builder import MUST_LOAD, Builder
from engine_images.build.model import Built, Order
from engine_images.build.order import order_for
from engine_images.compile.logprobs import Scored
from engine_images.manifest import EngineManifest, ModelContract
from engine_images.spec import EngineSettings
from pipelines.build_servers import BuildServers
from registry.digests import digest_files, whole_digest
from tidegate.core.clock import SystemClock

NAME = "bench"
STREAMS = (1, 4, 8)
REQUESTS = 24
TOKENS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a compile cache is worth.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--state", type=Path, default=Path(".tidegate/bench"))
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.model, arguments.state, arguments.runs)), indent=2))


async def measure(model: Path, state: Path, runs: int) -> dict[str, Any]:
    order, servers, shelf = order_of(model), BuildServers(SystemClock(), name=NAME), Shelf(state)
    built = await Builder(shelf, servers, CompletionScorer()).build(order, say)
    cold_root = state.absolute() / "cold"
    write_root(cold_root, EngineManifest(engine="cold", model=order.model, launch=order.launch), order.folder, None)
    starts: dict[str, list[dict[str, Any]]] = {"cold": [], "built": [], "eager": []}
    speed: dict[str, Any] = {}
    for run in range(runs):
        for what, root, extra, environment in (
            ("cold", cold_root, (), {}),
            ("built", built.root, (), MUST_LOAD),
            ("eager", built.root, ("--enforce-eager",), {}),
        ):
            say(f"{what} start {run + 1} of {runs}")
            folder = state.absolute() / "starts"
            attempt = Attempt(what, folder, folder / what, arguments=extra, environment=environment)
            measured = Speed(STREAMS if run == runs - 1 and what != "cold" else ())
            launch = serve(order, root, attempt.run, arguments=extra, environment=environment)
            started, _ = await attempt.make(launch, servers, measured, NAME, order.prompts)
            starts[what].append(
                {
                    "seconds": round(started.seconds, 1),
                    "init_seconds": started.log.init_seconds,
                    "loaded": started.log.loaded,
                    "memory_mib": started.memory_bytes >> 20,
                }
            )
            if measured.found:
                speed[what] = measured.found
    return {"machine": machine(), "build": record(built), "starts": starts, "medians": medians(starts), "speed": speed}


class Speed:
    """Asks for streams side by side: as many at a time as each of `streams` says."""

    def __init__(self, streams: Sequence[int]) -> None:
        self.streams = streams
        self.found: dict[str, Any] = {}

    async def score(self, url: str, model: str, prompts: Sequence[str]) -> tuple[Scored, ...]:
        async with AsyncOpenAI(
            base_url=f"{url}/v1", api_key="none", http_client=DefaultAsyncHttpxClient(trust_env=False)
        ) as client:
            for streams in self.streams:
                self.found[f"{streams} streams"] = await side_by_side(client, model, prompts, streams)
        return ()


async def side_by_side(client: AsyncOpenAI, model: str, prompts: Sequence[str], streams: int) -> dict[str, float]:
    gate, firsts = asyncio.Semaphore(streams), []
    tokens = 0

    async def one(number: int) -> None:
        nonlocal tokens
        async with gate:
            began = time.perf_counter()
            first = None
            async for _ in await client.completions.create(
                model=model,
                # Each its own: a prefix that is cached costs nothing.
                prompt=f"{number}. {prompts[number % len(prompts)]}",
                max_tokens=TOKENS,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            ):
                first = first or time.perf_counter() - began
                tokens += 1
            firsts.append(first or 0.0)

    began = time.perf_counter()
    await asyncio.gather(*map(one, range(REQUESTS)))
    seconds = time.perf_counter() - began
    return {"tokens_per_second": round(tokens / seconds, 1), "ttft_p50_ms": round(1000 * median(firsts), 1)}


def order_of(model: Path) -> Order:
    environment, files = find_engine_environment(), digest_files(model)
    settings = EngineSettings.model_validate(
        {"vllm": {"version": environment.vllm, "args": {"max-model-len": 512, "dtype": "float32"}}}
    )
    contract = ModelContract(name=NAME, version="1", digest=whole_digest(files), files=files)
    return order_for(contract, model, settings, environment, name=NAME)


def medians(starts: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    seconds = {what: median(start["seconds"] for start in found) for what, found in starts.items()}
    init = {what: median(start["init_seconds"] for start in found) for what, found in starts.items()}
    return {
        "cold_over_built": round(seconds["cold"] / seconds["built"], 2),
        "built_over_eager": round(seconds["built"] / seconds["eager"], 2),
        "cold_over_built_init": round(init["cold"] / init["built"], 1),
    }


def record(built: Built) -> dict[str, Any]:
    agreement = built.record.agreement
    assert agreement is not None, "a compiled engine was compared"
    return {"engine": built.engine, "tolerance": built.record.tolerance, **agreement.model_dump()}


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
