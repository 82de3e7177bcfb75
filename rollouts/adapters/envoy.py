"""Envoy as the proxy of one region, configured by files that are replaced in one step."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from rollouts.adapters import process, sockets
from rollouts.adapters.http import Http
from rollouts.adapters.process import ChildProcess
from rollouts.adapters.sockets import socket_path
from rollouts.base import RegionSplit
from rollouts.errors import FleetError, Unreachable
from rollouts.local import xds
from rollouts.local.locks import replace_json
from rollouts.local.xds import LOOPBACK
from tidegate.core.adapters.extras import not_installed
from tidegate.core.children import Child
from tidegate.core.errors import Refused

CONFIRM_SECONDS = 10.0
"""How long Envoy may take to come up or to confirm a file; far more than it ever needs."""

POLL_SECONDS = 0.002
"""Between two looks whether a swap holds; it holds after 2 to 5 ms."""

STOP_SECONDS = 5.0

_ADMIN = "http://envoy"
"""The Unix socket decides who is asked; the name stands in errors only."""


def binary() -> str:
    """Envoy next to this interpreter, or on PATH.

    Raises:
        NotInstalled: when there is none.
    """
    installed = Path(sys.executable).with_name("envoy")
    found = str(installed) if installed.exists() else shutil.which("envoy")
    if found is None:
        raise not_installed("envoy")
    return found


class Envoy:
    """A `Proxy`: one Envoy process."""

    def __init__(self, folder: Path, *, entry_port: int) -> None:
        """`folder` is its own: configuration and log."""
        self._folder, self._entry_port, self._stats_port = folder, entry_port, sockets.free_port()
        self._exits = ExitStack()
        self.admin = socket_path(folder, "admin.sock", self._exits)
        self._http = Http(self.admin)
        self._generation = itertools.count(1)
        # Every cluster that Envoy has been told of and not yet been told to forget.
        self._known: dict[str, int] = {}
        # Those that a route may name: of a swap that was not confirmed, the routes before it too.
        self._routed: set[str] = set()
        self._child: ChildProcess | None = None
        self.entry = f"http://{LOOPBACK}:{entry_port}"
        self.stats = f"http://{LOOPBACK}:{self._stats_port}"
        """Where its counters are told, at `xds.STATS_PATH`."""

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    async def start(self) -> None:
        """Open the endpoint, with nothing behind it yet.

        Raises:
            Refused: when somebody listens on the entry port.
            NotInstalled: when Envoy is not there.
            FleetError: when it does not come up.
        """
        # Envoy would say it too, but in its log and in its own words.
        if not sockets.is_free(self._entry_port):
            what = f"port {self._entry_port}, wanted as the entry of a region, is in use"
            raise Refused(what, hint="stop what uses it, or name another port")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_clusters()
        self._write_routes(RegionSplit())
        bootstrap = xds.bootstrap(
            entry_port=self._entry_port, stats_port=self._stats_port, admin=self.admin, folder=self._folder
        )
        replace_json(self._folder / "bootstrap.json", bootstrap)
        await self.restart()

    async def restart(self) -> None:
        if self._child is not None:
            await self._child.stop(grace_seconds=0)
        # Hot restart finds its predecessor by a machine-wide id: the Envoys of two regions would meet there.
        command = [binary(), "--config-path", str(self._folder / "bootstrap.json"), "--disable-hot-restart"]
        self._child = process.start(
            [*command, "--concurrency", "1", "--log-level", "warning"], kind=Child.PROXY, log=self._folder / "envoy.log"
        )
        await self._confirmed("come up", self._is_ready)

    async def swap(self, split: RegionSplit, ports: Mapping[str, int]) -> None:
        # A dead proxy confirms nothing.
        if not self.alive:
            await self.restart()
        # Clusters first: a route that names one that Envoy does not have yet would answer 503.
        fresh = xds.clusters_of(split, ports)
        if not fresh.items() <= self._known.items():
            self._known |= fresh
            self._write_clusters()
            await self._confirmed("take the clusters", self._has_clusters)
        self._routed |= fresh.keys()
        generation = self._write_routes(split)

        async def holds() -> bool:
            return await self._routes_generation() == generation

        await self._confirmed("take the routes", holds)
        self._routed = set(fresh)

    async def prune(self) -> None:
        # A cluster that is forgotten takes its counters along, and what is in flight is not counted yet.
        idle = [name for name in self._known if name not in self._routed and await self._in_flight(name) == 0]
        if idle:
            self._known = {name: port for name, port in self._known.items() if name not in idle}
            self._write_clusters()

    async def active(self, version: str) -> int:
        return await self._in_flight(f"[a-z]+_{re.escape(version)}")

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop(grace_seconds=STOP_SECONDS)
        await self._http.aclose()
        self._exits.close()

    def _write_clusters(self) -> None:
        response = xds.clusters(self._known, generation=str(next(self._generation)))
        replace_json(self._folder / xds.CLUSTERS_FILE, response)

    def _write_routes(self, split: RegionSplit) -> str:
        generation = str(next(self._generation))
        replace_json(self._folder / xds.ROUTES_FILE, xds.routes(split, generation=generation))
        return generation

    async def _confirmed(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Return when Envoy's own admin says that it holds: a file that was written proves nothing."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONFIRM_SECONDS
        while True:
            # No answer is no proof: ask again until the deadline.
            with suppress(Unreachable):
                if await holds():
                    return
            if loop.time() > deadline or not self.alive:
                raise FleetError(
                    f"the proxy did not {what}",
                    hint=f"see {self._folder / 'envoy.log'}",
                    detail=self._child.tail() if self._child else None,
                )
            await asyncio.sleep(POLL_SECONDS)

    async def _is_ready(self) -> bool:
        ready = (await self._http.get(f"{_ADMIN}/ready")).is_success
        return ready and await self._has_clusters() and bool(await self._routes_generation())

    async def _has_clusters(self) -> bool:
        reply = await self._http.get(f"{_ADMIN}/config_dump?resource=dynamic_active_clusters")
        seen: set[tuple[str, int]] = set()
        for cluster in (config["cluster"] for config in reply.json().get("configs", ())):
            (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
            seen.add((cluster["name"], endpoint["endpoint"]["address"]["socket_address"]["port_value"]))
        return set(self._known.items()) <= seen

    async def _routes_generation(self) -> str | None:
        reply = await self._http.get(f"{_ADMIN}/config_dump?resource=dynamic_route_configs")
        configs = reply.json().get("configs", ())
        return configs[0]["version_info"] if configs else None

    async def _in_flight(self, clusters: str) -> int:
        """Requests on the clusters whose names match, those included that still wait for a connection."""
        pattern = rf"^cluster\.{clusters}\.upstream_rq_(pending_)?active$"
        reply = await self._http.get(f"{_ADMIN}/stats?format=json&filter={pattern}")
        return sum(stat["value"] for stat in json.loads(reply.text)["stats"] if "value" in stat)
