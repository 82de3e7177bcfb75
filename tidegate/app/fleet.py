"""The fleet on this machine: start it with the champion, stop it, play its users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipelines.adapters.engines import local_engines, require_gpus_here
from pipelines.adapters.fleets import running_host
from pipelines.adapters.specs import on_this_machine, read_delivery, read_spec
from pipelines.adapters.stores import open_registry
from pipelines.adapters.this_machine import require_local_fleet, start_host, start_users
from pipelines.load.model import LoadTotals
from pipelines.plan.engines import engine_changes, record_of
from pipelines.plan.gates import rules_of
from pipelines.ports import Fleet, VersionRegistry
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from registry.conventions import ENGINE_SERVING
from registry.model import EngineRecord, ModelVersion
from rollouts.model import Engine
from tidegate.core.errors import OutsideError, Refused
from tidegate.core.process import cancelled_by_signals, ending_signals, note
from tidegate.core.threads import call_in_thread

LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class FleetOptions:
    """Which fleet to start, and whether to stay with it."""

    spec: Path
    state: Path
    tracking_uri: str | None = None
    detach: bool = False
    """Return once every region serves, and leave the fleet up."""


def serve_fleet(options: FleetOptions, announce: Callable[[str], None]) -> None:
    """Serve the champion in every region until Ctrl-C; `announce` gets a line for each region that serves.

    Raises:
        Refused: a fleet runs here already.
    """
    asyncio.run(_serve_until_stopped(options, read_delivery(options.spec), StateFolder(options.state), announce))


async def _serve_until_stopped(
    options: FleetOptions, spec: Delivery, state: StateFolder, announce: Callable[[str], None]
) -> None:
    on_this_machine(spec)
    require_local_fleet()
    require_gpus_here(spec)
    if await running_host(state.root) is not None:
        raise Refused("a fleet runs here already", hint="see `tidegate status`, or stop it with `tidegate fleet down`")
    registry = await call_in_thread(open_registry, state.root, options.tracking_uri)
    champion = await call_in_thread(registry.resolve, spec.model.name, spec.model.target)
    note(f"preparing {champion.uri}")
    serving = await call_in_thread(serving_engine, spec, champion, registry)
    engine = await local_engines(spec, state, registry).prepare(champion, note, serving)
    host = await start_host(spec, state, owned=not options.detach)
    served = False
    try:
        async with cancelled_by_signals():
            await host.load_rules(rules_of(spec))
            await asyncio.gather(*(_serve(host.fleet(region), engine, announce) for region in spec.regions.names))
            served = True
            if not options.detach:
                await _until_gone(host.fleet(spec.regions.names[0]))
    except asyncio.CancelledError:
        note("the fleet stops")
    finally:
        if not (options.detach and served):
            await host.stop()


def serving_engine(spec: Delivery, champion: ModelVersion, registry: VersionRegistry) -> EngineRecord:
    """The champion's engine as it was recorded; where nobody has, the spec's, which is recorded now.

    What the spec says of `engine` by now reaches users by a delivery alone.
    """
    tags = registry.tags(champion)
    kept, asked = EngineRecord.kept(tags.get(ENGINE_SERVING)), record_of(spec, champion, tags)
    if kept is None:
        registry.mark(champion, {ENGINE_SERVING: asked.json_text})
    elif kept.fingerprint != asked.fingerprint:
        changed = "; ".join(engine_changes(kept, asked))
        note(f"{champion.uri} is served by engine {kept.name}; `deliver` brings what the spec changes: {changed}")
    return kept or asked


def record_serving(spec_path: Path, state: Path, tracking_uri: str | None) -> str:
    """Record the spec's engine as the one that serves the champion; returns what was recorded, in words."""
    spec, registry = read_spec(spec_path), open_registry(state, tracking_uri)
    champion = registry.resolve(spec.model.name, spec.model.target)
    record = record_of(spec, champion, registry.tags(champion))
    registry.mark(champion, {ENGINE_SERVING: record.json_text})
    return f"{champion.uri} is served by engine {record.name}, {record.fingerprint[:8]}"


async def _serve(fleet: Fleet, champion: Engine, announce: Callable[[str], None]) -> None:
    note(f"{fleet.region}: starting version {champion.version}")
    serving = await fleet.deploy(champion)
    announce(f"{fleet.region}: version {champion.version} at {serving.entry}")


async def _until_gone(fleet: Fleet) -> None:
    while True:
        await fleet.observe()
        await asyncio.sleep(LOOK_SECONDS)


def stop_fleet(state: Path) -> bool:
    """Stop everything; false when nothing ran, which is no error."""
    return asyncio.run(_stop(state))


async def _stop(state: Path) -> bool:
    host = await running_host(state)
    if host is None:
        return False
    await host.stop()
    return True


CHECK_SECONDS = 1.0


def play_traffic(spec_path: Path, state: Path, *, seconds: float | None) -> LoadTotals:
    """Until Ctrl-C or for `seconds`; returns what became of every request."""
    return asyncio.run(_play_users(read_delivery(spec_path), spec_path.parent, StateFolder(state), seconds))


async def _play_users(spec: Delivery, folder: Path, state: StateFolder, seconds: float | None) -> LoadTotals:
    on_this_machine(spec)
    host = await running_host(state.root)
    if host is None:
        raise OutsideError("no fleet runs here", hint="start it with `tidegate fleet up`")
    load = start_users(spec, folder, state, host)
    note(f"users of {', '.join(spec.regions.names)}; Ctrl-C ends it")
    stopped = asyncio.Event()
    for number in ending_signals():
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await _until_stopped(stopped, load.check, seconds)
    return await load.stop()


async def _until_stopped(stopped: asyncio.Event, check: Callable[[], None], seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not stopped.is_set():
                check()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), CHECK_SECONDS)
