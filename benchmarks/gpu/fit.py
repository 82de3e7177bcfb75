"""The memory that is expected of an engine before it starts, against what it took: weights, KV cache, and the rest.

On a GPU by nvidia-smi, after as many answers at once as a burst has; on a CPU by the memory of the engine's processes,
of which what several share counts once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gpu.engines import NAME, StartWay, order_of, say, servers, settings_of, without_cache
from benchmarks.gpu.footprints import footprint_of
from benchmarks.gpu.hardware import device_bytes, gpu_bytes
from benchmarks.gpu.reports import PartReport, rounds
from benchmarks.gpu.streams import Endpoint, burst
from benchmarks.gpu.task import Task
from engine_images.accelerators import MEBIBYTE
from engine_images.adapters.builder import EngineServer
from engine_images.arguments.values import ArgumentValue
from engine_images.choices import CompileMode
from engine_images.memory import Footprint

STREAMS, TOKENS = 8, 16

NO_TERMS = frozenset({"answer", "cache", "available"})
"""Fields of a footprint that are not added up: the greater of the first two is the KV cache."""

_WEIGHTS = re.compile(r"Model loading took ([\d.]+) GiB")
_GRAPHS = re.compile(r"Graph capturing finished in \d+ secs, took ([\d.]+) GiB")


@dataclass(frozen=True)
class MemorySetting:
    """One way to serve; the KV cache is of a fixed size, or vLLM would take whatever is left."""

    name: str
    arguments: Mapping[str, ArgumentValue]
    mode: CompileMode = CompileMode.DEFAULT


def settings_for(*, on_cpu: bool) -> tuple[MemorySetting, ...]:
    """Three that differ in what they need: in the KV cache, and on a GPU in graphs and in the largest batch."""
    if on_cpu:
        return tuple(
            MemorySetting(f"cache of {size} MiB", {"kv-cache-memory-bytes": size * MEBIBYTE}, CompileMode.NONE)
            for size in (64, 512, 1024)
        )
    small, large = 2048 * MEBIBYTE, 8192 * MEBIBYTE
    return (
        MemorySetting("cache of 2 GiB, eager", {"kv-cache-memory-bytes": small}, CompileMode.NONE),
        MemorySetting("cache of 8 GiB, compiled", {"kv-cache-memory-bytes": large}),
        MemorySetting(
            "batches of 16384 tokens, eager",
            {"kv-cache-memory-bytes": small, "max-num-batched-tokens": 16384},
            CompileMode.NONE,
        ),
    )


async def measure(task: Task, report: PartReport) -> None:
    """Of the first model, one setting after the other."""
    settings = settings_for(on_cpu=task.on_cpu)
    found: dict[str, Any] = {}
    for number in rounds(report, task.limit, len(settings), "setting"):
        setting = settings[number]
        with report.going_on(setting.name):
            say(f"fit: {setting.name}")
            found[setting.name] = await compared(task, setting)
            report.put("settings", found)


async def compared(task: Task, setting: MemorySetting) -> dict[str, Any]:
    """Start it, ask it, and look."""
    expected = footprint_of(task.first, settings_of(task.accelerator, setting.mode, setting.arguments))
    order = order_of(task.first, task.accelerator, mode=setting.mode, arguments=setting.arguments)
    folder = task.state.absolute() / "fit"
    log = folder / f"{setting.name}.log"
    folder.mkdir(parents=True, exist_ok=True)
    before = 0 if task.on_cpu else device_bytes()
    launch = StartWay("fit", without_cache(order, folder / "root")).launch(order, folder)
    async with servers()(launch, log) as server:
        endpoint = Endpoint(server.url, NAME)
        await burst(endpoint, order.prompts, streams=STREAMS, requests=STREAMS, first=0, max_tokens=TOKENS)
        taken, how = _taken(task, server, before)
    return told(expected, taken) | {"measured_by": how, "of_vllm": own_words(log)}


def _taken(task: Task, server: EngineServer, before: int) -> tuple[int, str]:
    if task.on_cpu:
        return server.memory_bytes(), "proportional set size of the engine's processes"
    # Of this process are the engine's guard, and below it the engine's own.
    return gpu_bytes((child.pid for child in psutil.Process().children(recursive=True)), before)


def told(expected: Footprint, taken: int) -> dict[str, Any]:
    """Both in MiB, and by how much the expectation was above what was measured."""
    terms = {"kv_cache": max(expected.answer, expected.cache or 0)}
    terms |= {name: size for name, size in expected.model_dump().items() if name not in NO_TERMS}
    return {
        "expected_mib": {name: size // MEBIBYTE for name, size in terms.items()},
        "expected_total_mib": expected.needed // MEBIBYTE,
        "measured_total_mib": taken // MEBIBYTE,
        "expected_over_measured": round(expected.needed / taken, 3) if taken else None,
    }


def own_words(log: Path) -> dict[str, float]:
    """What vLLM says itself of weights and CUDA graphs, in GiB; nothing where it says nothing."""
    text = log.read_text(encoding="utf-8", errors="replace")
    said = {"weights_gib": _WEIGHTS.findall(text), "cuda_graphs_gib": _GRAPHS.findall(text)}
    return {name: float(values[-1]) for name, values in said.items() if values}
