"""How fast users leave a canary that is rolled back, as JSON.

The clock starts with the verdict, before the fleet host is told. Two ends are measured: the last request that
a user began and the canary served, and the first byte of the last answer that the canary began; the request had
reached it by then, so the second is an upper bound of "the last request that reached the canary".

    .venv/bin/python benchmarks/rollback.py --engine stand-in
    .venv/bin/python benchmarks/rollback.py --engine vllm --model FOLDER

Each run deploys a canary next to the same stable engine, gives it half of the users, and rolls it back while they
stream. `FOLDER` holds `model/`, a Hugging Face directory; the canary serves the same files under other versions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.engines.local_fleet import REGION, Users, delivery, stand_in
from figures import machine

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.model_version import read_version
from engine_images.build.engine_root import PORT, serve, write_root
from engine_images.build.model import build_request
from engine_images.checks.servable import process_bytes
from engine_images.choices import CompileMode
from engine_images.manifest import EngineManifest, ModelContract
from engine_images.spec import CompileSpec, EngineSettings, VllmSpec
from pipelines.adapters.local_engines import engine_of
from registry.files import digest_files, whole_digest
from rollouts.adapters import host_client
from rollouts.adapters.host_client import LocalRegionClient
from rollouts.model import Engine

WEIGHT = 50
SETTLE_SECONDS = 2.0
"""Of load at that weight before the verdict, and of load after it."""

MakeEngine = Callable[[str], Engine]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how fast a rollback takes users off a canary.")
    parser.add_argument("--engine", choices=["stand-in", "vllm"], default="stand-in")
    parser.add_argument("--model", type=Path, help="for vllm: the folder that holds model/")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--per-second", type=float, default=100, help="how many users begin a stream each second")
    options = parser.parse_args()
    if options.engine == "vllm" and options.model is None:
        parser.error("--engine vllm needs --model")
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        make = stand_in if options.engine == "stand-in" else _vllm(options.model.absolute(), Path(folder) / "state")
        model = "stand-in" if options.engine == "stand-in" else "m"
        result = asyncio.run(measure(Path(folder), make, model=model, runs=options.runs, per_second=options.per_second))
    print(json.dumps({"engine": options.engine, **result, "machine": machine()}, indent=2))


async def measure(folder: Path, make: MakeEngine, *, model: str, runs: int, per_second: float) -> dict[str, Any]:
    """Take `runs` canaries back, one after the other."""
    starts: list[float] = []
    answers: list[float] = []
    requests = failed = on_canary = 0
    with delivery(folder):
        host = await host_client.start(folder, {REGION: None}, owned=True)
        try:
            fleet = host.fleet(REGION)
            entry = (await fleet.deploy(make("1"))).entry
            for run in range(runs):
                await fleet.deploy(make(str(run + 2)))
                async with Users(entry, model=model, per_second=per_second, max_tokens=16) as users:
                    verdict_at = await _take_back(fleet)
                canary = [request for request in users.requests if request.role == "canary"]
                starts.append(max(request.started for request in canary) - verdict_at)
                answers.append(max(request.answered or 0 for request in canary) - verdict_at)
                requests, failed = requests + len(users.requests), failed + len(users.failed)
                on_canary += len(canary)
                print(f"run {run + 1}: {starts[-1] * 1000:.1f} ms, {answers[-1] * 1000:.1f} ms", file=sys.stderr)
        finally:
            await host.stop()
    return {
        "runs": runs,
        "requests": requests,
        "requests_on_canary": on_canary,
        "failed": failed,
        "last_start_ms": _summary(starts),
        "last_answer_begun_ms": _summary(answers),
    }


async def _take_back(fleet: LocalRegionClient) -> float:
    """Half of the users on the canary, then the verdict; returns when that was."""
    await fleet.shift(WEIGHT)
    await asyncio.sleep(SETTLE_SECONDS)
    verdict_at = time.monotonic()
    await fleet.rollback("1")
    await asyncio.sleep(SETTLE_SECONDS)
    return verdict_at


def _vllm(folder: Path, state: Path) -> MakeEngine:
    environment = find_engine_environment()
    settings = EngineSettings(
        vllm=VllmSpec(version=environment.vllm, args={"max-model-len": 1024, "dtype": "float32"}),
        compile=CompileSpec(mode=CompileMode.NONE),
    )
    model = folder / "model"
    files = digest_files(model)
    contract = ModelContract(name="m", version="1", digest=whole_digest(files), files=files)
    order = build_request(
        contract, model, settings, environment, name="m", memory_bytes=process_bytes(read_version(model), settings)
    )
    root = state / "root"
    write_root(root, EngineManifest(engine="m", model=contract, launch=order.launch), model, None)
    launch = serve(order, root, state / "run" / PORT)

    def make(version: str) -> Engine:
        return engine_of(launch, version=version, digest=f"sha256-of-{version}", model="m")

    return make


def _summary(seconds: list[float]) -> dict[str, float]:
    """In milliseconds, 0 for what came before the verdict; p99 of 20 runs is close to their maximum."""
    seconds = [max(0.0, each) for each in seconds]
    inner = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    return {
        name: round(value * 1000, 1)
        for name, value in (("p50", median(seconds)), ("p99", inner[98]), ("max", max(seconds)))
    }


if __name__ == "__main__":
    main()
