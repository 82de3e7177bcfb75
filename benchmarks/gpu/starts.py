"""Starts without a compile cache, with the kept one, and eagerly, in turn, of all models: what the cache is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.engines import StartWay, built, no_questions, order_for, say, servers, without_cache
from benchmarks.gpu.reports import PartReport, rounds
from benchmarks.gpu.task import Task
from engine_images.adapters.builder import MUST_LOAD, start_engine
from engine_images.build.model import BuildRequest, BuiltEngine

COLD, KEPT, EAGER = "cold", "kept", "eager"
AIMS = {"cold_over_kept": "3.5 or more", "kept_over_eager": "1.1 or less"}

Start = dict[str, Any]
Ways = tuple[StartWay, ...]


async def measure(task: Task, report: PartReport) -> None:
    """Build each model's engine, and start it again and again. A model that cannot be built is an error of its own."""
    ways: dict[str, tuple[BuildRequest, Ways]] = {}
    builds: dict[str, Any] = {}
    for name, model in task.models.items():
        with report.going_on(f"build of {name}"):
            say(f"{name}: building its engine")
            order = order_for(task, model)
            engine = await built(order, task.state)
            builds[name] = proof_of(engine)
            report.put("builds", builds)
            ways[name] = order, ways_of(order, engine, task.state / "cold" / name)
    starts: dict[str, dict[str, list[Start]]] = {
        name: {way.what: [] for way in each} for name, (_, each) in ways.items()
    }
    for run in rounds(report, task.limit, task.runs, "run"):
        for name, (order, each) in ways.items():
            say(f"{name}: run {run + 1} of {task.runs}")
            for way in each:
                starts[name][way.what].append(await started(order, way, task.state / "starts" / name))
                report.put("starts", starts)
        report.put("medians", {name: medians(found) for name, found in starts.items()})
    report.put("aims", AIMS)


def ways_of(order: BuildRequest, engine: BuiltEngine, cold_root: Path) -> Ways:
    """All three of one engine. The kept one fails when vLLM would compile again."""
    return (
        StartWay(COLD, without_cache(order, cold_root.absolute())),
        StartWay(KEPT, engine.root, environment=MUST_LOAD),
        StartWay(EAGER, engine.root, arguments=("--enforce-eager",)),
    )


async def started(order: BuildRequest, way: StartWay, folder: Path) -> Start:
    """One start, until its first answers."""
    start, _ = await start_engine(servers(), no_questions, order, way.root, way.attempt(folder.absolute()))
    return {
        "seconds": round(start.seconds, 2),
        "init_seconds": start.log.init_seconds,
        "loaded": start.log.loaded,
        "memory_mib": start.memory_bytes >> 20,
    }


def medians(starts: Mapping[str, Sequence[Start]]) -> dict[str, float]:
    """The median of each way, and how they are to each other."""
    seconds = {what: median(start["seconds"] for start in found) for what, found in starts.items()}
    init = {what: [start["init_seconds"] for start in found] for what, found in starts.items()}
    known = {what: median(found) for what, found in init.items() if None not in found}
    ratios = {
        "cold_over_kept": round(seconds[COLD] / seconds[KEPT], 2),
        "kept_over_eager": round(seconds[KEPT] / seconds[EAGER], 2),
    }
    if known.get(KEPT) and COLD in known:
        ratios["cold_over_kept_init"] = round(known[COLD] / known[KEPT], 1)
    return {f"{what}_seconds": found for what, found in seconds.items()} | ratios


def proof_of(engine: BuiltEngine) -> dict[str, Any]:
    """What the build found out: that it is the same model, and how fast."""
    record = engine.record
    agreement = record.agreement.model_dump() if record.agreement else {}
    speedups = [record.built.speedup] if record.built else []
    limits = {"tolerance": record.tolerance, "floor": record.floor}
    return {"engine": engine.engine, "speedups_over_eager": speedups, **limits, **agreement}
