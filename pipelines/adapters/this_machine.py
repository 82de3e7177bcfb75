"""The fleet on this machine: found or started, kept alive by who carries a delivery, with users that are played."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from pipelines.adapters.engines import local_engines, require_gpus_here
from pipelines.adapters.fleets import running_host
from pipelines.adapters.load.process import LoadProcess, start_load
from pipelines.adapters.specs import on_this_machine
from pipelines.adapters.stores import open_registry
from pipelines.load import LoadTotals
from pipelines.plan.engines import serving_engine
from pipelines.plan.gates import rules_of
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import user_prompts
from pipelines.state import StateFolder
from rollouts.adapters.host_client import FleetHost, start
from rollouts.cluster.carrier import Carrier
from rollouts.errors import FleetError
from rollouts.local.scrape_config import INTERVAL_SECONDS
from tidegate.core.adapters.extras import require
from tidegate.core.errors import Refused, TidegateError, UsageError
from tidegate.core.process import cancelled_by_signals, meanwhile, note
from tidegate.core.threads import call_in_thread

FRESH_SECONDS = 60.0

SCRAPE_TIMEOUT = timedelta(seconds=2)
"""Of the Prometheus on this machine: a sample has the time at which its scrape began."""

ON_THIS_MACHINE = ("uv", "starlette", "uvicorn")
"""Packages of a fleet here; first one that only the extra `local` has, so that all of it is named at once."""


def is_being_written(records: Path) -> bool:
    """Whether users' requests are being recorded now: a file from yesterday says nothing about this delivery."""
    return records.exists() and time.time() - records.stat().st_mtime < FRESH_SECONDS


@asynccontextmanager
async def host_of(spec: Delivery, state: StateFolder) -> AsyncIterator[FleetHost]:
    """The fleet that runs here, or one of our own that ends with us."""
    on_this_machine(spec)
    host = await running_host(state.root)
    if host is not None:
        require_regions(host, spec.regions.names)
        yield host
        return
    note("starting a fleet of our own")
    host = await start_host(spec, state, owned=True)
    try:
        yield host
    finally:
        await host.stop()


async def start_host(spec: Delivery, state: StateFolder, *, owned: bool) -> FleetHost:
    """A fleet with the spec's regions, and nothing in them yet; one that is `owned` ends with this process.

    Raises:
        Refused: a fleet runs here already.
    """
    ports = on_this_machine(spec).ports
    return await start(state.root, {region: ports.get(region) for region in spec.regions.names}, owned=owned)


def require_regions(host: FleetHost, wanted: Iterable[str]) -> None:
    missing = sorted(set(wanted) - set(host.regions()))
    if missing:
        raise Refused(
            f"the fleet that runs here has the regions {', '.join(host.regions())}, not {missing[0]}",
            hint="stop it with `tidegate fleet down`",
        )


BEAT_SECONDS = 5.0

BEATS = 4
"""In the time for which nothing may be heard, at least: one or two may be lost."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def fleet_heartbeat(host: FleetHost, carrier: Carrier) -> AsyncIterator[None]:
    """Within the context the host hears of `carrier`; afterwards of nobody, unless others go on with it."""

    async def beat() -> None:
        while True:
            try:
                await host.attend(carrier.who, unattended_seconds=carrier.unattended_seconds)
            except FleetError as error:
                log.info("the fleet host has not heard of us: %s", error)
            await asyncio.sleep(min(BEAT_SECONDS, carrier.unattended_seconds / BEATS))

    try:
        async with meanwhile(beat()):
            yield
    finally:
        if not carrier.hands_on:
            with suppress(FleetError):
                await host.leave()


LAST_SECONDS = 1.5 * INTERVAL_SECONDS
"""Until the last numbers of a delivery are scraped and stored: Prometheus ends the series of a target that is gone."""


@asynccontextmanager
async def prometheus_target(host: FleetHost, name: str, address: str | None) -> AsyncIterator[None]:
    """Let the fleet's Prometheus read the numbers at `address` meanwhile, under that name, the last ones too."""
    if address is None:
        yield
        return
    await _best_effort(host.scrape_also(name, address))
    try:
        yield
        await asyncio.sleep(LAST_SECONDS)
    finally:
        await _best_effort(host.forget(name))


async def _best_effort(action: Awaitable[None]) -> None:
    """A delivery does not depend on being watched."""
    try:
        await action
    except TidegateError as error:
        note(f"the fleet's Prometheus was not told where this delivery's numbers are: {error}")


def start_users(spec: Delivery, folder: Path, state: StateFolder, host: FleetHost) -> LoadProcess:
    """The load that the spec describes, against the entries of every region.

    Raises:
        UsageError: when the spec has no users' prompts.
    """
    if spec.traffic is None or spec.traffic.prompts is None:
        raise UsageError("--users needs prompts to send", hint="set traffic.prompts")
    prompts, records = user_prompts(spec, folder), state.traffic / f"{spec.metadata.name}.jsonl"
    return start_load(
        host.regions(),
        rate=spec.traffic.requests_per_second,
        prompts=prompts,
        model=spec.metadata.name,
        max_tokens=spec.traffic.max_tokens,
        records=records,
    )


LOOK_SECONDS = 1.0


async def serve_champion(
    spec: Delivery,
    folder: Path,
    state: StateFolder,
    tracking_uri: str | None,
    announce: Callable[[str], None],
    *,
    detach: bool = False,
    users: bool = False,
) -> LoadTotals | None:
    """Serve the champion in every region until a signal; `announce` gets a line for each region that serves.

    `announce` hears where each region answers. With `detach` it returns once every region serves, and leaves the fleet
    up; with `users` those that the spec describes are played, also where a fleet runs already.

    Returns:
        What became of the users' requests.

    Raises:
        Refused: a fleet runs here already, and no users are wanted.
    """
    on_this_machine(spec)
    running, load = await running_host(state.root), None
    if running is not None and not users:
        raise Refused("a fleet runs here already", hint="see `tidegate status`, or stop it with `tidegate fleet down`")
    end = "the fleet stops" if running is None else "users leave"
    async with AsyncExitStack() as stack:
        with suppress(asyncio.CancelledError):
            async with cancelled_by_signals(end):
                host = running
                if host is None:
                    own = _own_host(spec, state, tracking_uri, announce, detach=detach)
                    host = await stack.enter_async_context(own)
                if users:
                    load = start_users(spec, folder, state, host)
                    stack.push_async_callback(load.stop)
                    note(f"users of {', '.join(spec.regions.names)}; Ctrl-C ends it")
                while not detach:
                    if running is None:
                        await host.fleet(spec.regions.names[0]).observe()
                    if load is not None:
                        load.check()
                    await asyncio.sleep(LOOK_SECONDS)
    return load.totals() if load is not None else None


@asynccontextmanager
async def _own_host(
    spec: Delivery, state: StateFolder, tracking_uri: str | None, announce: Callable[[str], None], *, detach: bool
) -> AsyncIterator[FleetHost]:
    """A fleet that serves the champion in every region; it stops at the end, unless it serves and is to be left up."""
    require(*ON_THIS_MACHINE)
    require_gpus_here(spec)
    registry = await call_in_thread(open_registry, state.root, tracking_uri)
    champion = await call_in_thread(registry.resolve, spec.model.name, spec.model.target)
    note(f"preparing {champion.uri}")
    serving = await call_in_thread(serving_engine, spec, champion, registry, note)
    engine = await local_engines(spec, state, registry).prepare(champion, note, serving)

    async def serve(region: str) -> None:
        note(f"{region}: starting version {engine.version}")
        there = await host.fleet(region).deploy(engine)
        announce(f"{region}: version {engine.version} at {there.entry}")

    host, served = await start_host(spec, state, owned=not detach), False
    try:
        await host.load_rules(rules_of(spec))
        await asyncio.gather(*map(serve, spec.regions.names))
        served = True
        yield host
    finally:
        if not (detach and served):
            await host.stop()
