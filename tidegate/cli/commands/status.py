"""`tidegate status`: the last delivery, and what every region serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pipelines.adapters.lock import holder
from pipelines.state import StateFolder
from registry.model import DeliverySummary
from rollouts.adapters.host_client import attach
from rollouts.model import RegionState
from tidegate.cli.compose import open_deliveries, read_delivery
from tidegate.cli.output import print_json


def run(spec_path: Path, state: Path, tracking_uri: str | None, *, as_json: bool) -> int:
    """Print what is known here."""
    spec = read_delivery(spec_path)
    ledgers = open_deliveries(state, tracking_uri)
    last = next(iter(ledgers.deliveries(spec.model.name)), None)
    alive = last is not None and ledgers.is_alive(last)
    regions = asyncio.run(_observe(state))
    process = holder(StateFolder(state).lock)
    if as_json:
        print_json(
            {
                "delivery": last.model_dump(mode="json") if last else None,
                "alive": alive,
                "process": process,
                "regions": [region.model_dump(mode="json") for region in regions],
            }
        )
        return 0
    print(_delivery_line(last, alive=alive))
    for region in regions:
        print(_region_line(region))
    if not regions:
        print("no fleet runs here")
    return 0


async def _observe(state: Path) -> list[RegionState]:
    host = await attach(state)
    if host is None:
        return []
    return [await host.fleet(region).observe() for region in host.regions()]


def _delivery_line(last: DeliverySummary | None, *, alive: bool) -> str:
    if last is None:
        return "no delivery yet"
    head = f"delivery {last.id[:8]} of version {last.version}"
    if last.outcome:
        return f"{head}: {last.outcome}: {last.reason}"
    step = last.last_step or "its start"
    if not alive:
        return (
            f"{head}: died at {step}; process {last.pid} on {last.host} is gone; "
            "the next `tidegate deliver` closes it and starts anew"
        )
    return f"{head}: at {step}, process {last.pid} on {last.host}"


def _region_line(region: RegionState) -> str:
    arms = [
        f"{arm.role} {arm.version}{'' if arm.ready else ' (not ready)'}"
        for arm in (region.stable, region.canary, region.previous)
        if arm is not None
    ]
    traffic = f", {region.weight} % on the canary, {region.mirror} % mirrored" if region.canary else ""
    problem = f": {region.problem}" if region.problem else ""
    return f"{region.region}: {region.phase}, {', '.join(arms) or 'empty'}{traffic}, at {region.entry}{problem}"
