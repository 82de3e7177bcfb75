"""A model version's engine is started with one `max-num-seqs` after the other, under load, on this machine."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from engine_images.spec import EngineSettings
from pipelines.load.model import LoadShape
from pipelines.load.sweep import LatencyBudget, SweepResult
from pipelines.run.sweep import Sweep, SweepPlan
from pipelines.spec.evidence.load import SHORTEST_BLOCK, LoadSettings
from pipelines.spec.policy import load_requests
from pipelines.state import StateFolder
from registry.conventions import name_and_reference
from registry.model import ModelVersion
from rollouts.model import Engine
from tidegate.app.process import NotedAdoption, note
from tidegate.app.wiring.engines.providers import local_engines
from tidegate.app.wiring.engines.sweeps import sweep_tools
from tidegate.app.wiring.specs import on_this_machine, read_delivery
from tidegate.app.wiring.stores import open_registry
from tidegate.core.adapters.extras import require
from tidegate.core.durations import format_duration
from tidegate.core.errors import UsageError

SIZE = "max-num-seqs"


@dataclass(frozen=True)
class SweepOptions:
    """What a person asked for; None is what the spec's stage `load` says, or its defaults."""

    model: str
    """models:/NAME/VERSION, or models:/NAME@ALIAS."""
    spec: Path
    state: Path
    tracking_uri: str | None
    budget: LatencyBudget
    lowest: int
    highest: int
    blocks: int
    block: timedelta | None
    shape: LoadShape | None
    prompts: Path | None
    lengths: Path | None
    max_tokens: int | None


def sweep_engine(options: SweepOptions) -> SweepResult:
    """Measure until it is known which value keeps the budget.

    Raises:
        UsageError: an option or the spec's engine does not fit a sweep.
        TidegateError: an engine is not built or does not start. What was measured is kept.
    """
    if options.highest < options.lowest:
        raise UsageError(f"--to {options.highest} is less than --from {options.lowest}", hint="exchange them")
    if options.block and options.block < SHORTEST_BLOCK:
        expected = format_duration(SHORTEST_BLOCK)
        raise UsageError(f"--block: found {format_duration(options.block)}; expected {expected} or more")
    # Before minutes of building.
    require("gevent", "locust")
    name, reference = name_and_reference(options.model)
    spec, state = read_delivery(options.spec), StateFolder(options.state)
    on_this_machine(spec)
    asked = load_of(spec.load or LoadSettings(), options)
    try:
        requests = load_requests(spec, asked, options.spec.parent)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from error
    registry = open_registry(options.state, options.tracking_uri)
    version = registry.adopt(name, reference, progress=NotedAdoption())
    plan = SweepPlan(
        version=version.uri,
        model=spec.metadata.name,
        requests=requests,
        budget=options.budget,
        lowest=options.lowest,
        highest=options.highest,
        blocks=options.blocks,
        seconds=asked.block.total_seconds(),
        shape=asked.shape,
    )
    engines = local_engines(spec, state, registry, options.spec.parent)

    def engine_of(value: int) -> Awaitable[Engine]:
        note(f"{SIZE} {value}: preparing the engine")
        return replace(engines, settings=with_size(spec.engine, value)).prepare(version, note)

    return asyncio.run(_swept(plan, spec.engine, engine_of, version, state))


async def _swept(
    plan: SweepPlan,
    settings: EngineSettings,
    engine_of: Callable[[int], Awaitable[Engine]],
    version: ModelVersion,
    state: StateFolder,
) -> SweepResult:
    file = state.sweeps / f"{version.name}-{version.version}-{measured_as(plan, settings, version)}.jsonl"
    return await Sweep(plan=plan, engine_of=engine_of, tools=sweep_tools(state, file), tell=note).run()


def load_of(settings: LoadSettings, options: SweepOptions) -> LoadSettings:
    """The load of the spec's stage, but for what the person said; its own number of requests in flight is not asked.

    Files that the person named are found from the working folder, those of the spec from the spec.
    """
    said = {
        "block": options.block,
        "shape": options.shape,
        "prompts": options.prompts and options.prompts.absolute(),
        "lengths": options.lengths and options.lengths.absolute(),
        "max_tokens": options.max_tokens,
    }
    return settings.model_copy(update={name: value for name, value in said.items() if value is not None})


def with_size(settings: EngineSettings, value: int) -> EngineSettings:
    """The same engine with that `max-num-seqs`; batches that it then never has are not warmed up.

    Raises:
        UsageError: the engine's other arguments do not allow it.
    """
    vllm = settings.vllm
    warm = tuple(size for size in settings.compile.warm if size <= value) or (1,)
    changed = settings.model_copy(
        update={
            "vllm": vllm.model_copy(update={"args": {**vllm.args, SIZE: value}}),
            "compile": settings.compile.model_copy(update={"warm": warm}),
        }
    )
    for odd in changed.contradictions():
        raise UsageError(
            f"{SIZE} {value}: engine.{'.'.join(map(str, odd.where))}: found {odd.found}; expected {odd.expected}"
        )
    return changed


def measured_as(plan: SweepPlan, settings: EngineSettings, version: ModelVersion) -> str:
    """A digest of everything but the budget that blocks depend on: version, engine, load."""
    vllm = settings.vllm
    others = {name: value for name, value in vllm.args.items() if name != SIZE}
    parts = (
        version.digest,
        settings.model_copy(update={"vllm": vllm.model_copy(update={"args": others})}).model_dump_json(),
        f"{plan.seconds:g} {plan.shape}",
        *(request.model_dump_json() for request in plan.requests),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
