"""Time from a verdict to the last user on a canary, with the ledger there, stopped and gone, side by side, as JSON.

    .venv/bin/python benchmarks/last_user.py --runs 5

Users stream all the time, half of them to a canary in every region, when a gate fails. MLflow is a server of its own:
it answers, or takes connections and never answers (SIGSTOP), or is gone, from a moment before the verdict on. It comes
back when the delivery is over; then all that happened must be in it.

The fleet host, an Envoy for each of three regions, users and MLflow are real; engines are stand-ins, and the gate's
evidence is made up, so that the verdict falls while every region has users on the canary.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from failing_canary import FailingCanary
from fakes.delivery.world import CHALLENGER, CHAMPION, World, a_spec, right
from fakes.engines.local_fleet import Request, Users, delivery, stand_in
from fakes.services.mlflow_server import AwayServer
from figures import machine, milliseconds

from pipelines.events.journal import Journal
from pipelines.events.writer import Spool, WriterLimits, write_leftovers
from pipelines.run.engine import deliver
from registry.deliveries import MlflowDeliveries
from registry.model import ModelVersion
from rollouts.adapters import host_client
from rollouts.adapters.host_client import FleetHost
from rollouts.model import Engine
from tidegate.core.clock import SystemClock
from tidegate.testing import FakeChat

REGIONS = ("eu-west-1", "us-east-1", "ap-south-1")
MODES = ("there", "stopped", "gone")
SETTLE_SECONDS = 3.0
"""Users go on so long after the delivery is over: the one who is sent to the canary then is seen."""
LIMITS = WriterLimits(call=2.0, end=2.0)
"""Nobody waits 30 s for a ledger that stays away once users are back."""


class StandIns:
    """`Engines` that are stand-ins, each version another process."""

    async def prepare(self, version: ModelVersion, _: Any, __: Any = None) -> Engine:
        return stand_in(version.version)

    def folder(self, _: ModelVersion) -> Path:
        return Path("/")


class Chat(FakeChat):
    """Every engine answers the smoke prompt well."""

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> Any:
        self.scripts[url] = right
        return await super().ask(url, model, prompt, max_tokens=max_tokens)


async def turn_bad(world: World, server: AwayServer, mode: str) -> None:
    """The ledger goes away, and then the canary's evidence turns bad."""
    await asyncio.sleep(2)
    if mode != "there":
        await asyncio.to_thread(server.hang if mode == "stopped" else server.end)
    world.evidence.serves("canary", CHALLENGER, failed=0.5)


async def on_this_machine(mode: str, folder: Path, host: FleetHost, server: AwayServer) -> dict[str, Any]:
    """One delivery to the regions of the host; seconds after its verdict."""
    clock: Any = SystemClock()
    world = World(folder, a_spec(offline="", regions=f"regions: {{waves: [[{', '.join(REGIONS)}]], bake: 1s}}",
                                 shadow=""), clock=clock)  # fmt: skip
    context = replace(world.context(), engines=StandIns(), chat=Chat({}))
    deliveries = MlflowDeliveries(server.uri)
    ledger = await asyncio.to_thread(
        deliveries.open_delivery, context.plan.version, context.plan.champion, spec_digest="0" * 64
    )
    unwritten = folder / "unwritten"
    canary = FailingCanary(len(REGIONS), lambda: asyncio.get_running_loop().create_task(turn_bad(world, server, mode)))
    journal = Journal(
        ledger, clock, [canary], registry=world.registry, spool=Spool(unwritten, ledger.delivery), limits=LIMITS
    )
    fleets = {region: host.fleet(region) for region in REGIONS}
    async with AsyncExitStack() as stack:
        users = [
            await stack.enter_async_context(Users(host.regions()[region], per_second=20, max_tokens=10))
            for region in REGIONS
        ]
        result = await deliver(replace(context, journal=journal, fleets=fleets))
        over = time.monotonic()
        journal.end()
        await asyncio.sleep(SETTLE_SECONDS)
    assert (result.ending, int(result.exit_code)) == ("rolled-back", 1), result
    await asyncio.to_thread(server.start if mode == "gone" else server.answer)
    write_leftovers(unwritten, deliveries, world.registry, print)
    events = deliveries.events(ledger.delivery)
    assert any(event.kind == "closed" for event in events), "what happened did not reach the ledger"
    asked = [each for every in users for each in every.requests]
    return {**_after(canary.verdict_at, asked), "delivery_over": over - canary.verdict_at}


def _after(verdict: float, asked: Sequence[Request]) -> dict[str, Any]:
    on_canary = [each for each in asked if each.role == "canary"]
    assert on_canary, "nobody met the canary"
    return {
        "last_user_on_canary": max(0.0, max(each.started for each in on_canary) - verdict),
        "requests": len(asked),
        "on_canary": len(on_canary),
        "failed": sum(each.status != 200 or not each.whole for each in asked),
    }


async def local(runs: int) -> Mapping[str, list[dict[str, Any]]]:
    """Every mode in turn, again and again, on one fleet."""
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="tidegate-") as name, delivery(Path(name)):
        folder, server = Path(name), AwayServer(Path(name) / "mlflow")
        server.start()
        host = await host_client.start(folder, dict.fromkeys(REGIONS), owned=True)
        try:
            for region in REGIONS:
                await host.fleet(region).deploy(stand_in(CHAMPION))
            for number in range(runs):
                for mode in MODES:
                    place = folder / f"{number}-{mode}"
                    place.mkdir()
                    found[mode].append(await on_this_machine(mode, place, host, server))
                    print(f"{mode}: {found[mode][-1]}", file=sys.stderr)
        finally:
            await host.stop()
            server.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    before = machine()
    found = asyncio.run(local(runs))
    print(json.dumps({"runs": runs, "ledger": _told(found), "machine": before}, indent=2))


def _told(found: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    seconds = ("last_user_on_canary", "delivery_over")
    return {
        mode: {
            **{f"{what}_ms": milliseconds(each[what] for each in runs) for what in seconds},
            **{what: sum(each[what] for each in runs) for what in ("requests", "on_canary", "failed")},
        }
        for mode, runs in found.items()
    }


if __name__ == "__main__":
    main()
