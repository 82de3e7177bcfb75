"""The fleet host from outside: find it, start it, ask it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from rollouts.adapters import process
from rollouts.adapters.http import Http
from rollouts.adapters.process import ChildProcess
from rollouts.errors import FleetError, HostGone, Unreachable, error_from_json
from rollouts.local.locks import Layout
from rollouts.model import CarrierHeartbeat, Engine, RegionState
from tidegate.core.adapters.extras import require
from tidegate.core.children import Child
from tidegate.core.files import is_locked

START_SECONDS = 120.0
"""For a host to come up: Prometheus, which may replay its log first, and one Envoy a region."""

STOP_SECONDS = 120.0
"""For a host to end: streams drain, then engines get the 40 s that they may take."""

LOOK_SECONDS = 10.0
"""For an answer that waits for nothing."""

POLL_SECONDS = 0.05
ENDING_POLLS = 10
"""Looks at a host that does not answer, until it counts as alive."""
BASE = "http://fleet-host"
"""The Unix socket decides who is asked; the name stands in errors only."""


class LocalRegionClient:
    """A `Fleet`: one region of a fleet host."""

    def __init__(self, region: str, host: FleetHost) -> None:
        self.region = region
        self._host = host

    async def deploy(self, engine: Engine) -> RegionState:
        return await self._operate("deploy", engine=engine.model_dump(mode="json"))

    async def mirror(self, percent: int) -> RegionState:
        return await self._operate("mirror", percent=percent)

    async def shift(self, weight: int) -> RegionState:
        return await self._operate("shift", weight=weight)

    async def promote(self) -> RegionState:
        return await self._operate("promote")

    async def rollback(self, to: str | None) -> RegionState:
        return await self._operate("rollback", to=to)

    async def restart(self, version: str) -> RegionState:
        """All users to the version of before the delivery, which is no longer warm."""
        return await self._operate("restart", version=version)

    async def observe(self) -> RegionState:
        return await self._operate("observe", LOOK_SECONDS)

    async def way_back(self) -> str:
        """The version that served before the delivery that is open here; empty where none is."""
        return str(await self._host.ask(f"regions/{self.region}/way_back", LOOK_SECONDS))

    async def settle(self) -> None:
        """The delivery is over, and what serves stays."""
        await self._host.ask(f"regions/{self.region}/settle")

    async def carried(self) -> CarrierHeartbeat | None:
        """Who carries the delivery on this machine; None when nobody does."""
        found = await self._host.ask("carried", LOOK_SECONDS)
        return CarrierHeartbeat.model_validate(found) if found else None

    async def _operate(self, operation: str, seconds: float | None = None, **arguments: object) -> RegionState:
        said = await self._host.ask(f"regions/{self.region}/{operation}", seconds, **arguments)
        return RegionState.model_validate(said)


class FleetHost:
    """A fleet host that is up."""

    def __init__(self, layout: Layout, child: ChildProcess | None = None) -> None:
        """`child` when we started it ourselves."""
        record = json.loads(layout.record.read_text(encoding="utf-8"))
        self._layout = layout
        self._child = child
        self._socket = Path(record["socket"])
        self._http = Http(self._socket)
        self._regions: dict[str, str] = record["regions"]
        self.pid: int = record["pid"]
        self.prometheus_url: str = record["prometheus"]

    def regions(self) -> Mapping[str, str]:
        """The regions, each with the address that its users talk to."""
        return self._regions

    def fleet(self, region: str) -> LocalRegionClient:
        """One region of it."""
        return LocalRegionClient(region, self)

    async def load_rules(self, text: str) -> None:
        """Let its Prometheus evaluate the rules of this rule file, and no others; saying it again costs nothing.

        Raises:
            Refused: in Prometheus' words; the rules of before stay.
        """
        await self.ask("load_rules", text=text)

    async def scrape_also(self, name: str, address: str) -> None:
        """Let its Prometheus read the numbers at `address`/metrics too; `name` is at one address at a time."""
        await self.ask("scrape_also", name=name, address=address)

    async def forget(self, name: str) -> None:
        """Undo `scrape_also`; also right when that was never said."""
        await self.ask("forget", name=name)

    async def attend(self, who: str, *, unattended_seconds: float) -> None:
        """Say that this process, `who`, carries a delivery here; trials end once it was silent for so long."""
        await self.ask("attend", LOOK_SECONDS, who=who, process=os.getpid(), unattended_seconds=unattended_seconds)

    async def leave(self) -> None:
        """Say that nobody carries a delivery any more."""
        await self.ask("leave", LOOK_SECONDS)

    async def ask(self, path: str, seconds: float | None = None, **arguments: object) -> Any:
        """What a method of the host answers.

        Without `seconds` there is no deadline: the host has one for everything it does, and its death closes the
        socket.

        Raises:
            HostGone: it has ended: nobody is served by it, and nothing is on trial.
            Unreachable: it lives, and did not answer.
            FleetError: as it says itself, or a bug of it.
        """
        try:
            reply = await self._http.post(f"{BASE}/{path}", json=arguments, timeout=seconds)
        except Unreachable as error:
            # What the kernel takes from a process that dies it takes one after the other.
            for _ in range(ENDING_POLLS):
                if not is_up(self._layout):
                    raise HostGone(
                        f"{error.message}: the fleet host has ended, and all that it served with it",
                        hint="see its log; `tidegate fleet up` starts another",
                    ) from error
                await asyncio.sleep(POLL_SECONDS)
            raise
        if reply.status_code >= 500:
            raise FleetError(f"the fleet host failed at {path}", hint="see its log", detail=reply.text)
        if not reply.is_success:
            raise error_from_json(reply.json())
        return reply.json()

    async def stop(self) -> None:
        """End it and everything it runs; returns when nothing is left. Also right when it is gone."""
        await self.close()
        if is_up(self._layout):
            self._http = Http(self._socket)
            # It may have ended between the two looks; then there is nothing to ask.
            with suppress(HostGone):
                await self.ask("end", LOOK_SECONDS)
            await self.close()
            deadline = time.monotonic() + STOP_SECONDS
            while is_up(self._layout):
                if time.monotonic() > deadline:
                    raise FleetError("the fleet host does not end", hint=f"see {self._layout.log}")
                await asyncio.sleep(POLL_SECONDS)
        if self._child is not None:
            await self._child.stop(grace_seconds=STOP_SECONDS)

    async def close(self) -> None:
        """Let go of it; it runs on."""
        await self._http.aclose()


async def start(state: Path, regions: Mapping[str, int | None], *, owned: bool) -> FleetHost:
    """Start a fleet host for that state folder and return when it can be asked.

    `regions` are their names, each with its users' port, or None for a free one. One that is `owned` ends, in good
    order, when this process ends in any way; another lives on.

    Raises:
        Refused: when a host runs here already, or a port of `regions` is taken.
        NotInstalled: when a package that the host needs is not there.
        OutsideError: when Prometheus is not there.
    """
    require("starlette", "uvicorn")
    layout = Layout(state)
    # Left by a host that was killed; it would be taken for the one that we start.
    if not is_up(layout):
        layout.record.unlink(missing_ok=True)
    layout.failure.unlink(missing_ok=True)
    arguments = [name if port is None else f"{name}={port}" for name, port in regions.items()]
    child = process.start(
        [sys.executable, "-P", "-m", "rollouts.local.host", str(layout.state), *arguments],
        kind=Child.HOST,
        log=layout.log,
        orphan_signal=signal.SIGTERM if owned else None,
    )
    try:
        await _until_up(layout, child)
    # Ctrl-C included: a host that is unknown of must not stay.
    except BaseException:
        await child.stop(grace_seconds=STOP_SECONDS)
        raise
    return FleetHost(layout, child)


async def attach(state: Path) -> FleetHost | None:
    """The host that is up for this state folder, if there is one."""
    layout = Layout(state)
    return FleetHost(layout) if is_up(layout) and layout.record.exists() else None


def is_up(layout: Layout) -> bool:
    """Whether a host runs: the kernel gives its lock back when it ends in any way."""
    return is_locked(layout.lock)


async def _until_up(layout: Layout, child: ChildProcess) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _is_record_of(layout, child):
        if not child.alive and layout.failure.exists():
            raise error_from_json(json.loads(layout.failure.read_text(encoding="utf-8")))
        if not child.alive or time.monotonic() > deadline:
            raise FleetError("the fleet host did not come up", hint=f"see {layout.log}", detail=child.tail())
        await asyncio.sleep(POLL_SECONDS)


def _is_record_of(layout: Layout, child: ChildProcess) -> bool:
    with suppress(FileNotFoundError):
        pid = json.loads(layout.record.read_text(encoding="utf-8"))["pid"]
        # An owned host runs below its guard.
        return psutil.pid_exists(pid) and child.pid in (pid, psutil.Process(pid).ppid())
    return False
