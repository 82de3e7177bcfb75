"""How long users stay on a canary after a verdict, with the ledger there and away, side by side, as JSON.

    .venv/bin/python benchmarks/back_first.py --runs 5

Whole deliveries in real time: three regions on a canary at 50 %, then a gate fails while the ledger is there, blocks
for 5 s, hangs, or is gone. Regions and their users are in memory, so that what is measured is tidegate alone: from the
verdict to the last of the three requests to go back, to the last region that is back, and to the end of the delivery.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from failing_canary import FailingCanary
from fakes.delivery.ledger import AwayLedger
from fakes.delivery.world import CHALLENGER, World, a_spec
from figures import machine, milliseconds

from pipelines.events.journal import Journal
from pipelines.events.writer import Spool, WriterLimits
from pipelines.run.engine import deliver
from tidegate.core.clock import SystemClock

REGIONS = ("eu-west-1", "us-east-1", "ap-south-1")
BLOCKED_SECONDS = 5.0
END_SECONDS = 2.0
"""For a ledger that stays away, instead of 30 s: nobody has users there any more."""
MODES = ("there", "blocked 5 s", "hangs", "gone")


class Watched:
    """Notes when a region is asked to go back, and when it is."""

    def __init__(self, fleet: Any, asked: list[float], back: list[float]) -> None:
        self._fleet, self._asked, self._back = fleet, asked, back

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    async def rollback(self, to: str) -> Any:
        self._asked.append(time.monotonic())
        state = await self._fleet.rollback(to)
        self._back.append(time.monotonic())
        return state


def leave(ledger: AwayLedger, mode: str) -> None:
    """What becomes of the ledger once the verdict is there."""
    if mode == "gone":
        ledger.go_away()
    elif mode != "there":
        ledger.hang()
    if mode == "blocked 5 s":
        Timer(BLOCKED_SECONDS, ledger.come_back).start()


async def one(mode: str, folder: Path) -> dict[str, float]:
    """One delivery; seconds after its verdict."""
    together = f"regions: {{waves: [[{', '.join(REGIONS)}]], bake: 1s}}"
    clock: Any = SystemClock()
    world = World(folder, a_spec(regions=together, shadow=""), clock=clock)
    ledger: Any = AwayLedger(world.ledger)
    asked: list[float] = []
    back: list[float] = []
    canary = FailingCanary(
        len(REGIONS),
        lambda: world.evidence.serves("canary", CHALLENGER, failed=0.5),
        lambda: leave(ledger, mode),
    )
    limits = WriterLimits(call=10.0 if mode == "blocked 5 s" else 1.0, end=END_SECONDS)
    context = world.context()
    journal = Journal(
        ledger, clock, [canary], registry=world.registry, spool=Spool(folder / "unwritten", "1"), limits=limits
    )
    fleets = {name: Watched(fleet, asked, back) for name, fleet in context.fleets.items()}
    result = await deliver(replace(context, journal=journal, fleets=fleets))
    over = time.monotonic()
    journal.end()
    ledger.come_back()
    assert (result.ending, int(result.exit_code), len(asked)) == ("rolled-back", 1, len(REGIONS)), result
    verdict = canary.verdict_at
    return {"requests": max(asked) - verdict, "regions_back": max(back) - verdict, "delivery_over": over - verdict}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    before = machine()
    told: dict[str, Any] = {}
    for mode in MODES:
        with tempfile.TemporaryDirectory() as folder:
            found = []
            for number in range(runs):
                place = Path(folder) / str(number)
                place.mkdir()
                found.append(asyncio.run(one(mode, place)))
                print(f"{mode}: {found[-1]}", file=sys.stderr)
        told[mode] = {f"{what}_ms": milliseconds(each[what] for each in found) for what in found[0]}
    print(json.dumps({"runs": runs, "ledger": told, "machine": before}, indent=2))


if __name__ == "__main__":
    main()
