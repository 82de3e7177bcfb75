"""The fleet on this machine: found or started, kept alive by who carries a delivery, with users that are played."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gates.analyses.drift.spec import DriftGate, Feature
from pipelines.adapters.fleets import running_host
from pipelines.adapters.load.process import LoadProcess, start_load
from pipelines.adapters.specs import on_this_machine
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from rollouts.adapters.host_client import FleetHost, start
from rollouts.cluster.carrier import Carrier
from rollouts.errors import FleetError
from tidegate.core.adapters.extras import require
from tidegate.core.errors import Refused, TidegateError, UsageError
from tidegate.core.process import note

if TYPE_CHECKING:
    from pipelines.adapters.metrics_server import MetricsServer

FRESH_SECONDS = 60.0


SCRAPE_TIMEOUT = timedelta(seconds=2)
"""Of the Prometheus on this machine: a sample has the time at which its scrape began."""


ON_THIS_MACHINE = ("uv", "starlette", "uvicorn")
"""Packages of a fleet here; first one that only the extra `local` has, so that all of it is named at once."""


def require_local_fleet() -> None:
    """Be sure of the packages of a fleet here before anything is begun.

    Raises:
        NotInstalled: one is missing; says the command that installs it.
    """
    require(*ON_THIS_MACHINE)


def is_being_written(records: Path) -> bool:
    """Whether users' requests are being recorded now: a file from yesterday says nothing about this delivery."""
    return records.exists() and time.time() - records.stat().st_mtime < FRESH_SECONDS


@asynccontextmanager
async def host_of(spec: Delivery, state: StateFolder, *, keep: bool) -> AsyncIterator[FleetHost]:
    """The fleet that runs here, or one of our own that ends with us unless it is to be kept."""
    on_this_machine(spec)
    host = await running_host(state.root)
    if host is not None:
        require_regions(host, spec.regions.names)
        yield host
        return
    note("starting a fleet of our own")
    host = await start_host(spec, state, owned=not keep)
    try:
        yield host
    finally:
        if not keep:
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
    beating = asyncio.create_task(_beat(host, carrier))
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        if not carrier.hands_on:
            with suppress(FleetError):
                await host.leave()


async def _beat(host: FleetHost, carrier: Carrier) -> None:
    while True:
        try:
            await host.attend(carrier.who, unattended_seconds=carrier.unattended_seconds)
        except FleetError as error:
            log.info("the fleet host has not heard of us: %s", error)
        await asyncio.sleep(min(BEAT_SECONDS, carrier.unattended_seconds / BEATS))


@asynccontextmanager
async def prometheus_target(host: FleetHost, name: str, server: MetricsServer | None) -> AsyncIterator[None]:
    """Let the fleet's Prometheus read `server` meanwhile, under that name, and once more at the end; or nobody."""
    if server is None:
        yield
        return
    await _best_effort(host.scrape_also(name, server.address))
    try:
        yield
        await server.read_once_more()
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
    prompts, records = folder / spec.traffic.prompts, state.traffic / f"{spec.metadata.name}.jsonl"
    _freeze_topics(spec, prompts, records)
    return start_load(
        host.regions(),
        rate=spec.traffic.requests_per_second,
        prompts=prompts,
        model=spec.metadata.name,
        max_tokens=spec.traffic.max_tokens,
        regenerate=spec.traffic.regenerate,
        records=records,
    )


def _freeze_topics(spec: Delivery, prompts: Path, records: Path) -> None:
    """Find topics in what users are known to ask, once, when the drift gate is to look at them."""
    drift = spec.gates.only(DriftGate)
    if drift is None or drift.inputs is None or Feature.TOPIC not in drift.inputs.features:
        return
    from gates.adapters.text_models import WordEmbeddings
    from pipelines.adapters.load.prompts import fit_topics, read_prompts, topics_file

    path = topics_file(records)
    if path.exists():
        return
    topics = fit_topics(WordEmbeddings(), read_prompts(prompts))
    if topics is None:
        raise UsageError(f"{prompts} has too few prompts to find topics in", hint="leave topic out of drift.inputs")
    path.parent.mkdir(parents=True, exist_ok=True)
    topics.save(path)
