"""Throughput, TTFT and time between tokens of each way to compile, at 1, 8, 32 and 128 streams.

All engines are up, and one works at a time, so that what else the machine does meets each alike. Engines that do not
fit next to each other are measured one after the other, and the report says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.engines import NAME, StartWay, built_before, order_of, say, servers, settings_of, without_cache
from benchmarks.gpu.footprints import footprint_of
from benchmarks.gpu.reports import PartReport, rounds
from benchmarks.gpu.streams import Endpoint, burst, summed_up
from benchmarks.gpu.task import Task
from engine_images.accelerators import DEVICES
from engine_images.arguments.values import ArgumentValue
from engine_images.build.model import BuildRequest
from engine_images.choices import CompileMode

STREAMS = (1, 8, 32, 128)
TOGETHER = 0.9
"""Of the GPU's memory, for all engines that are up at once."""

_GRAPHS = re.compile(r"cudagraph_mode\W+CUDAGraphMode\.(\w+)")


@dataclass(frozen=True)
class CompiledWay:
    """One way to compile, as a spec asks for it."""

    name: str
    mode: CompileMode = CompileMode.DEFAULT
    arguments: Mapping[str, ArgumentValue] = field(default_factory=dict)
    not_on_cpu: str = ""
    """Why a CPU has none."""


NO_GRAPHS = "CUDA graphs are a GPU's"
WAYS = (
    CompiledWay("eager", CompileMode.NONE),
    CompiledWay("default"),
    CompiledWay("max-autotune", CompileMode.MAX_AUTOTUNE, not_on_cpu="vLLM 0.32 dies on a CPU while it compiles so"),
    CompiledWay("cuda-graphs-off", arguments={"compilation-config": {"cudagraph_mode": "NONE"}}, not_on_cpu=NO_GRAPHS),
    CompiledWay(
        "cuda-graphs-on",
        arguments={"compilation-config": {"cudagraph_mode": "FULL_AND_PIECEWISE"}},
        not_on_cpu=NO_GRAPHS,
    ),
)


@dataclass(frozen=True)
class Work:
    """How much is asked."""

    tokens: int
    """Of each answer."""
    per_stream: int
    """Answers of each stream in a round."""
    least: int
    """Answers in a round, however few the streams are."""
    rounds: int

    def requests(self, streams: int) -> int:
        """In one round."""
        return max(self.least, self.per_stream * streams)


WARM_UP = Work(tokens=16, per_stream=1, least=1, rounds=1)
"""Before what is measured: a GPU compiles kernels for batches that it sees for the first time."""
FULL, SMALL = Work(tokens=128, per_stream=3, least=8, rounds=3), Work(tokens=16, per_stream=1, least=4, rounds=2)

Bursts = dict[str, dict[str, list[dict[str, float]]]]


def ways_there(*, on_cpu: bool) -> tuple[list[CompiledWay], dict[str, str]]:
    """What can be measured, and why the rest cannot."""
    there = [way for way in WAYS if not (on_cpu and way.not_on_cpu)]
    return there, {way.name: way.not_on_cpu for way in WAYS if way not in there}


def groups(ways: Sequence[CompiledWay], needed: int, available: int | None) -> list[list[CompiledWay]]:
    """Which engines are up at the same time: all, or one, when each needs `needed` bytes of a GPU's `available`."""
    if available is None or needed * len(ways) <= TOGETHER * available:
        return [list(ways)]
    return [[way] for way in ways]


async def measure(task: Task, report: PartReport) -> None:
    """Of the first model."""
    ways, absent = ways_there(on_cpu=task.on_cpu)
    for name, why in absent.items():
        report.leave_out(name, why)
    needed = footprint_of(task.first, settings_of(task.accelerator, CompileMode.DEFAULT, {})).needed
    together = groups(ways, needed, DEVICES[task.accelerator].memory_bytes)
    report.put("engines_up_together", len(together[0]))
    work = SMALL if task.small else FULL
    report.put("work", {"tokens": work.tokens, "requests": {each: work.requests(each) for each in STREAMS}})
    found: Bursts = {}
    for group in together:
        async with AsyncExitStack() as stack:
            endpoints = await _up(task, group, stack, report)
            # Its prompts are numbered behind all others.
            await _round(endpoints, WARM_UP, FULL.rounds * FULL.requests(STREAMS[-1]), {})
            for turn in rounds(report, task.limit, work.rounds, f"round of {', '.join(endpoints)}"):
                say(f"throughput: round {turn + 1} of {work.rounds}")
                await _round(endpoints, work, turn, found)
                report.put("speed", _speed(found))


async def _up(
    task: Task, group: Sequence[CompiledWay], stack: AsyncExitStack, report: PartReport
) -> dict[str, tuple[Endpoint, BuildRequest]]:
    """Start them one after the other; one that does not start is an error of its own."""
    endpoints = {}
    for way in group:
        with report.going_on(f"start of {way.name}"):
            say(f"throughput: starting {way.name}")
            order = order_of(task.first, task.accelerator, mode=way.mode, arguments=way.arguments)
            log = task.state.absolute() / "throughput" / f"{way.name}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            start = await _start_way(task, order, way, count=len(group))
            server = await stack.enter_async_context(servers()(start.launch(order, log.parent), log))
            endpoints[way.name] = Endpoint(server.url, NAME), order
            if not task.on_cpu:
                report.put(f"cudagraph_mode of {way.name}", graphs_of(log))
    return endpoints


async def _start_way(task: Task, order: BuildRequest, way: CompiledWay, *, count: int) -> StartWay:
    """From its kept cache, where the starts were measured before: it saves a compile."""
    kept = built_before(order, task.state) if order.compiled else None
    root = kept.root if kept else without_cache(order, task.state.absolute() / "roots" / way.name)
    share = () if task.on_cpu else (f"--gpu-memory-utilization={TOGETHER / count:.3f}",)
    return StartWay(way.name, root, arguments=share)


def graphs_of(log: Path) -> str | None:
    """The mode of CUDA graphs that vLLM chose; None where it does not say."""
    modes = _GRAPHS.findall(log.read_text(encoding="utf-8", errors="replace"))
    return modes[-1] if modes else None


async def _round(endpoints: Mapping[str, tuple[Endpoint, BuildRequest]], work: Work, turn: int, found: Bursts) -> None:
    for streams in STREAMS:
        requests = work.requests(streams)
        for name, (endpoint, order) in endpoints.items():
            measured = await burst(
                endpoint,
                order.prompts,
                streams=streams,
                requests=requests,
                first=turn * requests,
                max_tokens=work.tokens,
            )
            found.setdefault(name, {}).setdefault(f"{streams} streams", []).append(measured)


def _speed(found: Bursts) -> dict[str, dict[str, Any]]:
    return {name: {streams: dict(_told(each)) for streams, each in per.items()} for name, per in found.items()}


def _told(bursts: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, Any]]:
    yield "rounds", len(bursts)
    yield from summed_up(bursts).items()
