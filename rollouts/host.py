"""The fleet host: the process that owns a local fleet, so that users are served whatever becomes of a delivery."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import uvicorn

from rollouts import scrape
from rollouts.adapters import machine, ports
from rollouts.adapters.engine_process import EngineProcesses
from rollouts.adapters.envoy import Envoy
from rollouts.adapters.files import replace_json
from rollouts.adapters.http import Http
from rollouts.adapters.prometheus import Prometheus
from rollouts.app import HostApp
from rollouts.capacity import Admission
from rollouts.layout import Layout
from rollouts.region import Region
from rollouts.watchdog import delivery_runs
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import Refused, TidegateError

TEND_SECONDS = 0.1
"""Between two looks at engines and proxies: how long users may meet a proxy that is gone."""

LOCK_TRIES = 10
LOCK_PAUSE_SECONDS = 0.05

WATCH_SECONDS = 0.5
"""Between two looks at the delivery's lock: how long users may stay on a canary that nobody watches."""

LONGEST_SOCKET_PATH = 99
"""In characters. The kernel's own limit is 107 bytes."""

log = logging.getLogger(__name__)


class Host:
    """The regions of one machine, with the Prometheus that sees them all."""

    def __init__(self, layout: Layout, http: Http, clock: Clock) -> None:
        """Nothing runs before `up` is entered; `http` is closed by whoever opened it."""
        self._layout = layout
        self._http = http
        self._clock = clock
        self._admission = Admission(machine.measure)
        self._proxies: dict[str, Envoy] = {}
        self._prometheus = Prometheus(layout.prometheus, http)
        self._others: dict[str, str] = {}
        """Addresses of numbers that are no region's, by the name under which they were announced."""
        self._stopping = asyncio.Event()
        self.regions: dict[str, Region] = {}

    def stop(self) -> None:
        """Ask it to end."""
        self._stopping.set()

    async def load_rules(self, text: str) -> None:
        """As the port `Metrics`."""
        await self._prometheus.load_rules(text)

    def scrape_also(self, name: str, address: str) -> None:
        """As the port `Metrics`; Prometheus knows within a look."""
        self._others[name] = address

    def forget(self, name: str) -> None:
        """As the port `Metrics`."""
        self._others.pop(name, None)

    @asynccontextmanager
    async def up(self, entries: Mapping[str, int | None]) -> AsyncIterator[None]:
        """Prometheus and the regions' proxies run inside; nothing runs after it."""
        async with AsyncExitStack() as running:
            running.push_async_callback(self._prometheus.stop)
            await self._prometheus.start()
            for region, port in entries.items():
                running.push_async_callback(await self._open(region, port))
            yield

    async def look_after(self) -> None:
        """Tend everything until asked to stop."""
        async with asyncio.TaskGroup() as group:
            for region in self.regions.values():
                group.create_task(self._tend(region))
                group.create_task(self._watch(region))
            group.create_task(self._scrape())

    def record(self, listener: Path) -> dict[str, object]:
        """What a client needs in order to find this host."""
        return {
            "pid": os.getpid(),
            "socket": str(listener),
            "prometheus": self._prometheus.url,
            "regions": {region: proxy.entry for region, proxy in self._proxies.items()},
        }

    async def _open(self, name: str, port: int | None) -> Callable[[], Awaitable[None]]:
        """Open a region's door; returns how to close it."""
        proxy = Envoy(self._layout.proxy(name), self._http, entry_port=port or ports.free_port())
        engines = EngineProcesses(
            name, logs=self._layout.logs, http=self._http, admission=self._admission, clock=self._clock
        )
        try:
            await proxy.start()
        # It is on no list yet that `up` would close.
        except TidegateError:
            await proxy.stop()
            raise
        self._proxies[name] = proxy
        self.regions[name] = Region(name, proxy=proxy, engines=engines, clock=self._clock)
        return self.regions[name].stop

    async def _tend(self, region: Region) -> None:
        """Start again what died. An error of one look is logged: the next one comes at once."""
        while not self._stopping.is_set():
            try:
                await region.tend()
            except TidegateError:
                log.exception("%s: trying again", region.region)
            await self._pause(TEND_SECONDS)

    async def _watch(self, region: Region) -> None:
        """Take a canary back that no delivery watches any more."""
        while not self._stopping.is_set():
            # Only a canary needs a delivery: a region that serves one version is well without any.
            if region.on_trial and not delivery_runs(self._layout.state):
                stable = (await region.observe()).stable
                log.warning("%s: no delivery runs any more; its canary is taken back", region.region)
                await self._take_back(region, stable.version if stable else "")
            await self._pause(WATCH_SECONDS)

    async def _take_back(self, region: Region, to: str) -> None:
        try:
            await region.rollback(to)
        except TidegateError:
            log.exception("%s: trying again", region.region)

    async def _scrape(self) -> None:
        """Keep Prometheus alive, and its targets true."""
        while not self._stopping.is_set():
            try:
                if not self._prometheus.alive:
                    await self._prometheus.start()
                self._prometheus.scrape(await self._targets())
            except TidegateError:
                log.exception("prometheus: trying again")
            await self._pause(TEND_SECONDS)

    async def _targets(self) -> list[scrape.Json]:
        targets = list(map(scrape.delivery_target, self._others.values()))
        for name, region in self.regions.items():
            # Nobody knows yet whose the numbers of an empty region will be, and nobody is served there.
            if region.service is not None:
                state = await region.observe()
                arms = filter(None, (state.stable, state.canary, state.previous))
                targets.append(scrape.proxy_target(region.service, name, self._proxies[name].admin))
                targets += scrape.engine_targets(region.service, name, arms)
        return targets

    async def _pause(self, seconds: float) -> None:
        """Return after `seconds`, or at once when the host shall end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


async def serve(state: Path, regions: Mapping[str, int | None]) -> None:
    """Run a fleet host until SIGTERM, SIGINT or its `/stop`; nothing is left running then.

    Args:
        state: the state folder; at most one host runs for each.
        regions: their names, each with the port that its users talk to, or None for a free one.

    Raises:
        Refused: when a host runs here already.
        PortInUse: when somebody listens on a port of `regions`.
        OutsideError: when Envoy or Prometheus is not there.
    """
    layout = Layout(state)
    layout.fleet.mkdir(parents=True, exist_ok=True)
    with _only_host(layout), _listener(layout) as (listener, path):
        # A host that was killed left its record; it must not pass for ours while we come up.
        layout.record.unlink(missing_ok=True)
        async with Http() as http:
            host = Host(layout, http, SystemClock())
            for end in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(end, host.stop)
            async with _answering(host, listener), host.up(regions):
                # Last of all: whoever finds the record finds every region open.
                replace_json(layout.record, host.record(path))
                try:
                    await host.look_after()
                finally:
                    layout.record.unlink(missing_ok=True)


@asynccontextmanager
async def _answering(host: Host, listener: socket.socket) -> AsyncIterator[None]:
    app = HostApp(host.regions, host, stop=host.stop).build()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


@contextmanager
def _only_host(layout: Layout) -> Iterator[None]:
    with layout.lock.open("ab") as file:
        if not _locked(file):
            raise Refused(f"a fleet host runs already for {layout.state}", hint="stop it, or use another folder")
        yield


def _locked(file: BinaryIO) -> bool:
    """Take the lock; tried for half a second, because whoever looks for a host holds it for an instant."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_SECONDS)
        else:
            return True
    return False


@contextmanager
def _listener(layout: Layout) -> Iterator[tuple[socket.socket, Path]]:
    """A Unix socket that only we can open; elsewhere when the kernel would find its path too long."""
    path = layout.fleet / "host.sock"
    with ExitStack() as exits:
        if len(str(path)) > LONGEST_SOCKET_PATH:
            path = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-"))) / "host.sock"
        path.unlink(missing_ok=True)
        listener = exits.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        # Whoever can open it can move all traffic.
        path.chmod(0o600)
        yield listener, path
        path.unlink(missing_ok=True)
