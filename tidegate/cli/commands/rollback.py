"""`tidegate rollback`: every region back, now."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from pipelines.adapters.lock import delivery_lock, holder
from pipelines.ports import Fleet
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from pipelines.unwind import needs_undoing
from registry.adapters.mlflow_models import MlflowRegistry
from registry.model import Alias, ModelVersion
from rollouts.model import Engine
from tidegate.cli.carriers import insisting
from tidegate.cli.compose import open_registry, read_delivery
from tidegate.cli.ground import engines_of, standing_fleets
from tidegate.cli.output import note, print_json, say
from tidegate.core.errors import OutsideError

LOOK_SECONDS = 0.2


def run(spec_path: Path, state: Path, tracking_uri: str | None, *, as_json: bool) -> int:
    """Stop the delivery that runs; when none does, finish undoing a dead one, or go back to the previous champion."""
    spec, folder = read_delivery(spec_path), StateFolder(state)
    process = holder(folder.lock)
    versions = (
        asyncio.run(_stop_delivery(process, spec, folder))
        if process is not None
        else asyncio.run(_to_previous(spec, folder, open_registry(state, tracking_uri)))
    )
    if as_json:
        print_json({"regions": versions})
    else:
        for region, version in versions.items():
            say(f"{region}: version {version}")
    return 0


async def _stop_delivery(process: int, spec: Delivery, state: StateFolder) -> Mapping[str, str]:
    note(f"stopping the delivery of process {process}; it takes its regions back itself")
    os.kill(process, signal.SIGTERM)
    while holder(state.lock) == process:
        await asyncio.sleep(LOOK_SECONDS)
    async with standing_fleets(spec, state) as fleets:
        return await _served(fleets)


async def _to_previous(spec: Delivery, state: StateFolder, registry: MlflowRegistry) -> Mapping[str, str]:
    async with standing_fleets(spec, state, carrier=insisting(spec)) as fleets:
        if not fleets:
            raise OutsideError("no fleet runs here", hint="start it with `tidegate fleet up`")
        with delivery_lock(state.lock):
            wanted = {region: fleets[region] for region in spec.regions.names}
            target = await _target(spec, wanted, registry)
            engine = await engines_of(spec, state, registry).prepare(target, note)
            await asyncio.gather(*(_back(fleet, engine) for fleet in wanted.values()))
            registry.reinstate(target)
        return await _served(fleets)


async def _target(spec: Delivery, fleets: Mapping[str, Fleet], registry: MlflowRegistry) -> ModelVersion:
    """The champion while a region is not on it, as after a delivery that died; else the champion before."""
    champion = registry.resolve(spec.model.name, Alias.CHAMPION)
    states = [await fleet.observe() for fleet in fleets.values()]
    if any(needs_undoing(state, champion.version) for state in states):
        return champion
    return registry.resolve(spec.model.name, Alias.PREVIOUS)


async def _back(fleet: Fleet, engine: Engine) -> None:
    """To the warm previous when it is still up; else it starts anew and takes over when it is ready."""
    now = await fleet.observe()
    if engine.version in [arm.version for arm in (now.stable, now.previous) if arm is not None]:
        await fleet.rollback(engine.version)
        return
    note(f"{fleet.region}: version {engine.version} is no longer warm and is started again")
    await fleet.deploy(engine)
    await fleet.promote()


async def _served(fleets: Mapping[str, Fleet]) -> Mapping[str, str]:
    states = [await fleet.observe() for fleet in fleets.values()]
    for state in states:
        if state.problem:
            note(f"{state.region}: {state.problem}")
    return {state.region: state.stable.version if state.stable else "none" for state in states}
