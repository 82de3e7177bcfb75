"""The fleet host: the process that owns a local fleet, so that users are served whatever becomes of a delivery.

It answers HTTP on a Unix socket: one route for each method, JSON both ways, errors that keep their class.

`python -P -m rollouts.local.host STATE REGION[=PORT]...` runs one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from inspect import isawaitable
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rollouts.adapters import sockets
from rollouts.adapters.engine_process import EngineProcesses
from rollouts.adapters.envoy import Envoy
from rollouts.adapters.http import Http
from rollouts.adapters.prometheus import PrometheusProcess
from rollouts.adapters.sockets import socket_path
from rollouts.errors import FleetError, NotPossible, error_to_json
from rollouts.local import machine
from rollouts.local.locks import LOCK, HeartbeatMonitor, Layout, delivery_runs, holder, replace_json
from rollouts.local.machine import Admission
from rollouts.local.region import LocalRegion
from rollouts.local.scrape_config import DELIVERY_JOB, ENGINE_JOB, PROXY_JOB, target
from rollouts.model import Engine
from tidegate.core.adapters.asgi import serving
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import ExitCode, Refused, TidegateError
from tidegate.core.files import lock_open_file
from tidegate.core.model import Value

RECONCILE_SECONDS = 0.1
"""Between two looks at engines and proxies: how long users may meet a proxy that is gone."""

LOCK_SECONDS = 0.5
"""How long the lock is tried for: the one who looks for a host holds it for an instant."""

WATCH_SECONDS = 0.5
"""Between two looks at the delivery's lock: how long users may stay on a canary whose delivery is gone."""

log = logging.getLogger(__name__)


class Host:
    """The regions of one machine, with the Prometheus that sees them all."""

    def __init__(self, layout: Layout, http: Http, clock: Clock) -> None:
        """Nothing runs before `up` is entered; `http` is closed by the one who opened it."""
        self._layout, self._http, self._clock = layout, http, clock
        self._admission = Admission(machine.measure)
        self.heartbeat = HeartbeatMonitor(clock)
        self._proxies: dict[str, Envoy] = {}
        self._prometheus = PrometheusProcess(layout.prometheus, http)
        self._others: dict[str, str] = {}
        """Addresses of numbers that are no region's, by the name under which they were announced."""
        self._stopping = asyncio.Event()
        self.regions: dict[str, LocalRegion] = {}

    def stop(self) -> None:
        """Ask it to end: the one who asked waits until the host's lock is free."""
        self._stopping.set()

    def app(self) -> Starlette:
        """What answers: `POST /regions/REGION/METHOD` and `POST /METHOD`, with the method's arguments by name."""
        methods: Mapping[str, Callable[..., object]] = {
            "load_rules": self._prometheus.load_rules,
            "scrape_also": lambda name, address: self._others.update({name: address}),
            "forget": lambda name: self._others.pop(name, None),
            "carried": lambda: self.heartbeat.last,
            "attend": self.heartbeat.record,
            "leave": self.heartbeat.clear,
            "end": self.stop,
        }

        async def of_region(request: Request) -> Response:
            name, method = request.path_params["region"], request.path_params["method"]
            if name not in self.regions:
                raise NotPossible(f"there is no region {name} here", hint=f"there are: {', '.join(self.regions)}")
            return await _called(getattr(self.regions[name], method) if method in OF_REGION else None, request)

        async def of_host(request: Request) -> Response:
            return await _called(methods.get(request.path_params["method"]), request)

        async def say_why(_: Request, error: Exception) -> Response:
            assert isinstance(error, TidegateError)
            # A 500 is a bug.
            return JSONResponse(error_to_json(error), status_code=409)

        paths = {"/regions/{region}/{method}": of_region, "/{method}": of_host}
        routes = [Route(path, answer, methods=["POST"]) for path, answer in paths.items()]
        return Starlette(routes=routes, exception_handlers={TidegateError: say_why})

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
        """Reconcile every region, watch deliveries and scrape until asked to stop."""
        async with asyncio.TaskGroup() as group:
            for region in self.regions.values():
                group.create_task(self._every(RECONCILE_SECONDS, region.reconcile))
                group.create_task(self._every(WATCH_SECONDS, partial(self._watch, region)))
            group.create_task(self._every(RECONCILE_SECONDS, self._scrape))

    def record(self, listener: Path) -> dict[str, object]:
        """What a client needs in order to find this host."""
        return {
            "pid": os.getpid(),
            "socket": str(listener),
            "prometheus": self._prometheus.url,
            "regions": {region: proxy.entry for region, proxy in self._proxies.items()},
        }

    async def _open(self, name: str, port: int | None) -> Callable[[], Awaitable[None]]:
        """Open a region's endpoint; returns how to close it."""
        proxy = Envoy(self._layout.proxy(name), entry_port=port or sockets.free_port())
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
        kept = self._layout.way_back(name)
        self.regions[name] = LocalRegion(name, proxy=proxy, engines=engines, clock=self._clock, kept=kept)
        return self.regions[name].close

    async def _every(self, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        """Until the host shall end. An error of one look is logged: the next one comes at once."""
        while not self._stopping.is_set():
            try:
                await look()
            except TidegateError:
                log.exception("trying again")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _watch(self, region: LocalRegion) -> None:
        """Take a canary back that no delivery watches any more."""
        if delivery_runs(self._layout.state):
            why = self.heartbeat.silence(holder(self._layout.state / LOCK))
        else:
            # What was heard of a process that is gone says nothing about the next one.
            self.heartbeat.clear()
            why = "no delivery runs here any more"
        # Only a canary needs a delivery: a region that serves one version is well without any.
        if region.on_trial and why:
            log.warning("%s: %s; its canary is rolled back", region.region, why)
            await region.end_trial(why)

    async def _scrape(self) -> None:
        """Keep Prometheus alive, and its targets true."""
        if not self._prometheus.alive:
            await self._prometheus.start()
        targets = [target(DELIVERY_JOB, address) for address in self._others.values()]
        for name, region in self.regions.items():
            # No one knows yet whose the numbers of an empty region will be, and nobody is served there.
            if region.service is not None:
                state = await region.observe()
                place = {"service": region.service, "region": name}
                targets.append(target(PROXY_JOB, self._proxies[name].stats, **place))
                # Past the proxy: a warm previous has numbers too.
                for arm in filter(None, (state.stable, state.canary, state.previous)):
                    targets.append(target(ENGINE_JOB, arm.url, **place, role=str(arm.role), version=arm.version))
        self._prometheus.scrape(targets)


OF_REGION = frozenset(("observe", "deploy", "mirror", "shift", "promote", "rollback", "settle", "restart", "way_back"))
"""The methods of a region that may be called."""


async def _called(method: Callable[..., object] | None, request: Request) -> Response:
    if method is None:
        return Response(status_code=404)
    arguments = await request.json()
    if "engine" in arguments:
        arguments["engine"] = Engine.model_validate(arguments["engine"])
    done = method(**arguments)
    if isawaitable(done):
        done = await done
    return JSONResponse(done.model_dump(mode="json") if isinstance(done, Value) else done)


async def serve(state: Path, regions: Mapping[str, int | None]) -> None:
    """Run a fleet host until SIGTERM, SIGINT or its `/stop`; nothing is left running then.

    At most one runs for each state folder. `regions` are their names, each with the port of its users, None for any.

    Raises:
        Refused: when a host runs here already, or somebody listens on a port of `regions`.
        OutsideError: when Envoy or Prometheus is not there.
    """
    layout = Layout(state)
    layout.fleet.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("ab") as file:
        if not lock_open_file(file, seconds=LOCK_SECONDS):
            raise Refused(f"a fleet host runs already for {layout.state}", hint="stop it, or use another folder")
        # A host that was killed left its record; it must not pass for ours while we come up.
        layout.record.unlink(missing_ok=True)
        with _listener(layout) as (listener, path):
            async with Http() as http:
                host = Host(layout, http, SystemClock())
                for end in (signal.SIGTERM, signal.SIGINT):
                    asyncio.get_running_loop().add_signal_handler(end, host.stop)
                config = uvicorn.Config(host.app(), log_level="warning", access_log=False, lifespan="off")
                async with serving(config, listener), host.up(regions):
                    # Last of all: the one who finds the record finds every region open.
                    replace_json(layout.record, host.record(path))
                    try:
                        await host.look_after()
                    finally:
                        layout.record.unlink(missing_ok=True)


@contextmanager
def _listener(layout: Layout) -> Iterator[tuple[socket.socket, Path]]:
    """A Unix socket that only we can open; elsewhere when the kernel would find its path too long."""
    with ExitStack() as exits:
        path = socket_path(layout.fleet, "host.sock", exits)
        path.unlink(missing_ok=True)
        listener = exits.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        # Anyone who can open it can move all traffic.
        path.chmod(0o600)
        yield listener, path
        path.unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    """Serve until told to stop; leave the reason behind for the one who started us when that fails."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # One line for each look at an engine's health would bury everything else.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    state, *regions = arguments
    entries = {name: int(port) if port else None for name, _, port in (each.partition("=") for each in regions)}
    try:
        asyncio.run(serve(Path(state), entries))
    except TidegateError as error:
        replace_json(Layout(Path(state)).failure, error_to_json(error))
        return error.exit_code
    # Anyone who started us reads the reason there; the traceback is in the host's log.
    except Exception as bug:
        logging.getLogger(__name__).exception("the fleet host ends by a bug in tidegate")
        told = FleetError(
            f"internal error of the fleet host: {type(bug).__name__}", hint="see its log; please report it"
        )
        replace_json(Layout(Path(state)).failure, error_to_json(told))
        return ExitCode.INTERNAL
    return ExitCode.DELIVERED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
