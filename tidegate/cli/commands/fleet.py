"""`tidegate fleet`: what serves on this machine, with or without a delivery."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pipelines.slos import rules_of
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from rollouts.adapters.host_client import FleetHost, LocalFleet, attach, start
from rollouts.model import Engine
from tidegate.cli.compose import local_engines, on_this_machine, open_registry, read_delivery
from tidegate.cli.interrupt import cancelled_by_signals
from tidegate.cli.output import note, say
from tidegate.core.errors import Refused

LOOK_SECONDS = 2.0


def up(spec_path: Path, state: Path, tracking_uri: str | None, *, detach: bool) -> int:
    """Serve the champion in every region."""
    return asyncio.run(_up(read_delivery(spec_path), StateFolder(state), tracking_uri, detach=detach))


async def _up(spec: Delivery, state: StateFolder, tracking_uri: str | None, *, detach: bool) -> int:
    ports = on_this_machine(spec).ports
    if await attach(state.root) is not None:
        raise Refused("a fleet runs here already", hint="see `tidegate status`, or stop it with `tidegate fleet down`")
    registry = open_registry(state.root, tracking_uri)
    champion = registry.resolve(spec.model.name, spec.model.target)
    note(f"preparing {champion.uri}")
    engine = await local_engines(spec, state, registry).prepare(champion, note)
    regions = {region: ports.get(region) for region in spec.regions.names}
    host = await start(state.root, regions, owned=not detach)
    served = False
    try:
        async with cancelled_by_signals():
            await host.load_rules(rules_of(spec))
            await asyncio.gather(*(_serve(host.fleet(region), engine) for region in regions))
            served = True
            if not detach:
                await _until_gone(host)
    except asyncio.CancelledError:
        note("the fleet stops")
    finally:
        if not (detach and served):
            await host.stop()
    return 0


async def _serve(fleet: LocalFleet, champion: Engine) -> None:
    note(f"{fleet.region}: starting version {champion.version}")
    serving = await fleet.deploy(champion)
    say(f"{fleet.region}: version {champion.version} at {serving.entry}")


async def _until_gone(host: FleetHost) -> None:
    while True:
        await host.fleet(next(iter(host.regions()))).observe()
        await asyncio.sleep(LOOK_SECONDS)


def down(state: Path) -> int:
    """Stop everything; saying it when nothing runs is no error."""
    return asyncio.run(_down(state))


async def _down(state: Path) -> int:
    host = await attach(state)
    if host is None:
        print("no fleet runs here")
        return 0
    await host.stop()
    print("stopped")
    return 0
