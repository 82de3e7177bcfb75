"""`tidegate status`: the last delivery, and what every region serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from pipelines.adapters.lock import holder
from pipelines.ports import Fleet
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from pipelines.strangers import strangers_in
from registry.model import DeliverySummary
from rollouts.errors import FleetError
from rollouts.model import Phase, RegionState
from tidegate.cli.compose import open_deliveries, read_delivery
from tidegate.cli.output import note, print_json, say
from tidegate.cli.standing import standing_fleets
from tidegate.core.errors import ExitCode, TidegateError


def run(spec_path: Path, state: Path, tracking_uri: str | None, *, as_json: bool) -> int:
    """Print what is known here; 4 when a region cannot be seen, or serves nobody."""
    spec = read_delivery(spec_path)
    ledgers = open_deliveries(state, tracking_uri)
    last = next(iter(ledgers.deliveries(spec.model.name, last=1)), None)
    alive = last is not None and ledgers.is_alive(last)
    regions, silent = asyncio.run(_observe(spec, StateFolder(state)))
    process = holder(StateFolder(state).lock)
    if as_json:
        print_json(
            {
                "delivery": last.model_dump(mode="json") if last else None,
                "alive": alive,
                "process": process,
                "regions": [region.model_dump(mode="json") for region in regions],
                "silent": silent,
            }
        )
        return _exit_code(regions, silent)
    say(_delivery_line(last, alive=alive))
    for region in regions:
        for line in (_region_line(region), *_stranger_lines(region)):
            say(line)
    for name, reason in silent.items():
        say(f"{name}: cannot be seen: {reason}")
    if not regions and not silent:
        print("no fleet runs here")
    return _exit_code(regions, silent)


def _exit_code(regions: Sequence[RegionState], silent: Mapping[str, str]) -> ExitCode:
    """Whether every region was seen, and has a stable engine that answers: none at all is no fleet."""
    serving = [region.stable is not None and region.stable.ready for region in regions]
    return ExitCode.DELIVERED if serving and all(serving) and not silent else ExitCode.OUTSIDE


async def _observe(spec: Delivery, state: StateFolder) -> tuple[list[RegionState], dict[str, str]]:
    """Every region that can be seen, and why others cannot: one that is away must not hide the rest."""
    async with standing_fleets(spec, state, patience=timedelta(0)) as fleets:
        found = await asyncio.gather(*(_seen(fleet) for fleet in fleets.values()))
    seen = [state for state in found if isinstance(state, RegionState)]
    return seen, {region: each for region, each in zip(fleets, found, strict=True) if isinstance(each, str)}


async def _seen(fleet: Fleet) -> RegionState | str:
    try:
        state = await fleet.observe()
    except FleetError as error:
        return str(error)
    try:
        return state.model_copy(update={"strangers": await strangers_in(fleet)})
    except TidegateError as error:
        note(f"{fleet.region}: whose all the objects there are is not known: {error}")
        return state


def _delivery_line(last: DeliverySummary | None, *, alive: bool) -> str:
    if last is None:
        return "no delivery yet"
    head = f"delivery {last.id[:8]} of version {last.version}"
    if last.outcome:
        return f"{head}: {last.outcome}: {last.reason}"
    step = last.last_step or "its start"
    if not alive:
        gone = "nobody carries it" if last.patience_seconds else f"process {last.pid} on {last.host} is gone"
        hint = f"`tidegate resume {last.id}` carries it on, the next `tidegate deliver` closes it and starts anew"
        return f"{head}: died at {step}; {gone}; {hint}"
    carried = "carried step by step" if last.patience_seconds else f"process {last.pid} on {last.host}"
    return f"{head}: at {step}, {carried}"


def _region_line(region: RegionState) -> str:
    arms = [
        f"{arm.role} {arm.version}{'' if arm.ready else ' (not ready)'}"
        for arm in (region.stable, region.canary, region.previous)
        if arm is not None
    ]
    traffic = f", {region.weight} % on the canary, {region.mirror} % mirrored" if region.canary else ""
    problem = f": {region.problem}" if region.problem else ""
    nothing = "" if region.phase is Phase.UNKNOWN else ", empty"
    served = f", {', '.join(arms)}" if arms else nothing
    return f"{region.region}: {region.phase}{served}{traffic}, at {region.entry}{problem}"


def _stranger_lines(region: RegionState) -> list[str]:
    """Those that the region's own line does not name."""
    return [f"{region.region}: {each}" for each in region.strangers if str(each) not in (region.problem or "")]
