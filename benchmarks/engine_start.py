"""What a compile cache is worth: cold, kept and eager starts in turn, answers and log-probabilities, as JSON.

    .venv/bin/python -m benchmarks.engine_start MODEL --runs 5 --state .tidegate/bench > result.json

`MODEL` is a Hugging Face directory. Its engine is built first, or found in `--state`. A cold start has no compile
cache, a kept one has the engine's, an eager one compiles nothing. `seconds` is from the start of the process to its
first answers, `init_seconds` is vLLM's own initialization, the part that a compile cache shortens. For speed,
a kept and an eager engine are both up and asked in turn; the client shares the machine's cores. On a GPU, and with more
ways to compile: `benchmarks/gpu.sh`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.figures import machine
from benchmarks.gpu.engines import NAME, StartWay, built, order_of, say, servers
from benchmarks.gpu.starts import Start, medians, proof_of, started, ways_of
from benchmarks.gpu.streams import Endpoint, burst, summed_up
from engine_images.build.model import BuildRequest

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
    order = order_of(model)
    engine = await built(order, state)
    ways = ways_of(order, engine, state / "cold")
    folder = state.absolute() / "starts"
    starts: dict[str, list[Start]] = {way.what: [] for way in ways}
    for run in range(runs):
        for way in ways:
            say(f"{way.what} start {run + 1} of {runs}")
            starts[way.what].append(await started(order, way, folder))
    return {
        "machine": machine(),
        "build": proof_of(engine),
        "starts": starts,
        "medians": medians(starts) if runs else {},
        "speed": await compared(ways[1:], order, folder, rounds),
    }


async def compared(
    ways: Sequence[StartWay], order: BuildRequest, folder: Path, rounds: int
) -> dict[str, dict[str, Any]]:
    """All engines are up, and one works at a time, so that what else the machine does meets each alike."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {way.what: {} for way in ways}
    async with AsyncExitStack() as stack:
        endpoints = {}
        for way in ways:
            log = folder / f"{way.what}.log"
            server = await stack.enter_async_context(servers()(way.launch(order, folder), log))
            endpoints[way.what] = Endpoint(server.url, NAME)
        for turn in range(rounds):
            say(f"speed, round {turn + 1} of {rounds}")
            for streams, requests in REQUESTS.items():
                for what, endpoint in endpoints.items():
                    measured = await burst(
                        endpoint,
                        order.prompts,
                        streams=streams,
                        requests=requests,
                        first=turn * requests,
                        max_tokens=TOKENS,
                    )
                    found[what].setdefault(f"{streams} streams", []).append(measured)
    return {what: {streams: summed_up(each) for streams, each in per.items()} for what, per in found.items()}


if __name__ == "__main__":
    main()
