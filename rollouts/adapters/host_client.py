"""The fleet host from outside: find it, start it, ask it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from rollouts.adapters import process
from rollouts.adapters.http import Http
from rollouts.adapters.process import ChildProcess
from rollouts.errors import FleetError, Unreachable
from rollouts.layout import Layout
from rollouts.model import Engine, RegionState
from rollouts.watchdog import is_locked
from rollouts.wire import unpack
from tidegate.core.children import Child

START_SECONDS = 120.0
"""For a host to come up: Prometheus, which may replay its log first, and one Envoy a region."""

STOP_SECONDS = 120.0
"""For a host to end: streams drain, then engines get the 40 s that they may take."""

POLL_SECONDS = 0.05
BASE = "http://fleet-host"
"""The Unix socket decides who is asked; the name stands in errors only."""


class LocalFleet:
    """A `Fleet`: one region of a fleet host."""

    def __init__(self, region: str, http: Http) -> None:
        self.region = region
        self._http = http

    async def deploy(self, engine: Engine) -> RegionState:
        return await self._wish("deploy", engine.model_dump(mode="json"))

    async def mirror(self, percent: int) -> RegionState:
        return await self._wish("mirror", {"percent": percent})

    async def shift(self, weight: int) -> RegionState:
        return await self._wish("shift", {"weight": weight})

    async def promote(self) -> RegionState:
        return await self._wish("promote", {})

    async def rollback(self, to: str | None) -> RegionState:
        return await self._wish("rollback", {"to": to})

    async def observe(self) -> RegionState:
        reply = await self._http.get(f"{BASE}/regions/{self.region}", timeout_seconds=10)
        return _state(reply.status, reply.json())

    async def _wish(self, wish: str, body: dict[str, Any]) -> RegionState:
        # No deadline here: the host has one for everything it does, and its death closes the socket.
        reply = await self._http.post(f"{BASE}/regions/{self.region}/{wish}", body, timeout_seconds=None)
        if reply.status >= 500:
            raise FleetError(f"the fleet host failed at {wish} in {self.region}", hint="see its log", detail=reply.text)
        return _state(reply.status, reply.json())


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

    def fleet(self, region: str) -> LocalFleet:
        """One region of it."""
        return LocalFleet(region, self._http)

    async def load_rules(self, text: str) -> None:
        """Let its Prometheus evaluate the rules of this rule file, and no others; saying it again costs nothing.

        Raises:
            RulesRefused: in Prometheus' words; the rules of before stay.
        """
        await self._tell("rules", {"text": text})

    async def scrape_also(self, name: str, address: str) -> None:
        """Let its Prometheus read the numbers at `address`/metrics too; `name` is at one address at a time."""
        await self._tell("scrape", {"name": name, "address": address})

    async def forget(self, name: str) -> None:
        """Undo `scrape_also`; also right when that was never said."""
        await self._tell("forget", {"name": name})

    async def _tell(self, what: str, body: dict[str, str]) -> None:
        reply = await self._http.post(f"{BASE}/{what}", body, timeout_seconds=None)
        if reply.status >= 500:
            raise FleetError(f"the fleet host failed at {what}", hint="see its log", detail=reply.text)
        if not reply.ok:
            raise unpack(reply.json())

    async def stop(self) -> None:
        """End it and everything it runs; returns when nothing is left. Also right when it is gone."""
        await self.close()
        if is_up(self._layout):
            await self._ask_to_end()
            await _until_gone(self._layout)
        if self._child is not None:
            await self._child.stop(grace_seconds=STOP_SECONDS)

    async def _ask_to_end(self) -> None:
        async with Http(self._socket) as http:
            try:
                await http.post(f"{BASE}/stop", timeout_seconds=10)
            except Unreachable:
                # It may have ended between the two looks; then there is nothing to ask.
                if is_up(self._layout):
                    raise

    async def close(self) -> None:
        """Let go of it; it runs on."""
        await self._http.close()


async def start(state: Path, regions: Mapping[str, int | None], *, owned: bool) -> FleetHost:
    """Start a fleet host and return when it can be asked.

    Args:
        state: the state folder.
        regions: their names, each with its users' port, or None for a free one.
        owned: whether it ends, in good order, when this process ends in any way; else it lives on.

    Raises:
        Refused: when a host runs here already.
        PortInUse: when a port of `regions` is taken.
        OutsideError: when Envoy or Prometheus is not there.
    """
    layout = Layout(state)
    # Left by a host that was killed; it would be taken for the one that we start.
    if not is_up(layout):
        layout.record.unlink(missing_ok=True)
    layout.failure.unlink(missing_ok=True)
    wishes = [name if port is None else f"{name}={port}" for name, port in regions.items()]
    child = process.start(
        [sys.executable, "-P", "-m", "rollouts.host_main", str(layout.state), *wishes],
        kind=Child.HOST,
        log=layout.log,
        orphan_signal=signal.SIGTERM if owned else None,
    )
    try:
        await _until_up(layout, child)
    # Ctrl-C included: a host that nobody knows of must not stay.
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
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_SECONDS
    while not _is_record_of(layout, child):
        if not child.alive and layout.failure.exists():
            raise unpack(json.loads(layout.failure.read_text(encoding="utf-8")))
        if not child.alive or loop.time() > deadline:
            raise FleetError("the fleet host did not come up", hint=f"see {layout.log}", detail=child.tail())
        await asyncio.sleep(POLL_SECONDS)


def _is_record_of(layout: Layout, child: ChildProcess) -> bool:
    try:
        record = json.loads(layout.record.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    # An owned host runs below its guard.
    return psutil.pid_exists(record["pid"]) and child.pid in (record["pid"], psutil.Process(record["pid"]).ppid())


async def _until_gone(layout: Layout) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STOP_SECONDS
    while is_up(layout):
        if loop.time() > deadline:
            raise FleetError("the fleet host does not end", hint=f"see {layout.log}")
        await asyncio.sleep(POLL_SECONDS)


def _state(status: int, body: Any) -> RegionState:
    if status >= 400:
        raise unpack(body)
    return RegionState.model_validate(body)
