"""One delivery on this machine, from the lock to the report."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from prometheus_client import Metric
from rich.console import Console

from gates.adapters.prometheus import PrometheusSource
from gates.adapters.prometheus_events import PrometheusEvents
from gates.adapters.records import RecordSource
from pipelines.adapters.chat import OpenAIChat
from pipelines.adapters.lock import delivery_lock
from pipelines.adapters.metrics_server import MetricsServer
from pipelines.context import Context
from pipelines.engines import LocalEngines
from pipelines.event_file import EventFile
from pipelines.exported import families
from pipelines.journal import Journal, Listener
from pipelines.model import Ending, Plan, Result
from pipelines.run import deliver
from pipelines.slos import rules_of
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from pipelines.trials import Trials
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_ledger import MlflowLedger
from registry.adapters.mlflow_models import MlflowRegistry
from rollouts.adapters.host_client import FleetHost, attach, start
from tidegate.cli.commands.report import write_report
from tidegate.cli.commands.traffic import start_users
from tidegate.cli.compose import local_engines, make_plan_of, on_this_machine, open_deliveries, open_registry
from tidegate.cli.interrupt import cancelled_by_signals
from tidegate.cli.output import note, print_json
from tidegate.cli.own_metrics import host_and_port, read_by
from tidegate.cli.progress import Progress, follow
from tidegate.cli.readers import readers_for
from tidegate.cli.view import summary
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, Refused, TidegateError

BEAT_SECONDS = 10.0
FRESH_SECONDS = 60.0
SCRAPE_TIMEOUT = timedelta(seconds=2)
"""Of the Prometheus on this machine: a sample has the time at which its scrape began."""


@dataclass(frozen=True)
class Request:
    """What the person asked for."""

    spec: Delivery
    folder: Path
    state: StateFolder
    registry: MlflowRegistry
    deliveries: MlflowDeliveries
    spec_digest: str
    users: bool
    keep: bool
    metrics: tuple[str, int]
    """Host and port at which the delivery's own numbers are served."""


@dataclass(frozen=True)
class Written:
    """Where everything that happens is written down."""

    journal: Journal
    trials: Trials
    numbers: Callable[[], Iterable[Metric]]
    """What has happened, for Prometheus."""


def run_delivery(
    spec: Delivery,
    spec_path: Path,
    state: Path,
    tracking_uri: str | None,
    *,
    as_json: bool,
    users: bool,
    keep: bool,
    metrics_address: str,
) -> int:
    """Deliver what the aliases name; `users` plays users meanwhile, `keep` leaves up a fleet that this starts."""
    request = Request(
        spec=spec,
        metrics=host_and_port(metrics_address),
        folder=spec_path.parent,
        state=StateFolder(state),
        registry=open_registry(state, tracking_uri),
        deliveries=open_deliveries(state, tracking_uri),
        spec_digest=sha256(spec_path.read_bytes()).hexdigest(),
        users=users,
        keep=keep,
    )
    progress = follow(Console(stderr=True, highlight=False), SystemClock())
    result = asyncio.run(_locked(request, progress))
    if as_json:
        print_json(result.model_dump(mode="json") | {"report": str(_report(request, result.delivery))})
    else:
        Console(highlight=False).print(summary(progress.story))
        print(f"report: {_report(request, result.delivery)}")
    return int(result.exit_code)


def _report(request: Request, delivery: str) -> Path:
    return request.state.delivery(delivery) / "report.html"


async def _locked(request: Request, progress: Progress) -> Result:
    """Nothing is opened or started before the lock is held and the plan stands."""
    with delivery_lock(request.state.lock):
        plan = make_plan_of(request.spec, request.folder, request.registry)
        ledger = request.deliveries.open_delivery(plan.version, plan.champion, spec_digest=request.spec_digest)
        events = EventFile(request.state.delivery(ledger.delivery) / "events.jsonl")
        listeners: Sequence[Listener] = (events, progress)
        journal = Journal(ledger, SystemClock(), listeners)
        trials = Trials(request.state.delivery(ledger.delivery), ledger)
        written = Written(journal, trials, lambda: families(progress.story, delivery=ledger.delivery))
        with progress:
            async with cancelled_by_signals(), _heartbeat(ledger):
                result = await _in_fleet(request, plan, written)
        write_report(request.spec, request.state, [(ledger.delivery, events)], _report(request, ledger.delivery))
        ledger.attach(_report(request, ledger.delivery))
    return result


async def _in_fleet(request: Request, plan: Plan, written: Written) -> Result:
    """The delivery inside its fleet. What goes wrong before it begins closes the ledger too."""
    result: Result | None = None
    try:
        # First, because without the engine environment there is nothing to start a fleet for.
        engines = local_engines(request.spec, request.state, request.registry)
        async with AsyncExitStack() as stack:
            metrics = MetricsServer(written.numbers, *request.metrics)
            stack.push_async_callback(metrics.close)
            host = await stack.enter_async_context(fleet_of(request.spec, request.state, keep=request.keep))
            await host.load_rules(rules_of(request.spec))
            if request.users:
                load = start_users(request.spec, request.folder, request.state, host)
                stack.push_async_callback(load.stop)
            await stack.enter_async_context(read_by(host, request.spec.metadata.name, metrics))
            result = await deliver(_context(request, plan, written, host, engines))
    except TidegateError as error:
        if result is None:
            return written.journal.closed(Ending.FAILED, str(error), error.exit_code)
        note(f"the delivery is over, but what it started did not end well: {error}")
    except asyncio.CancelledError:
        if result is None:
            return written.journal.closed(Ending.INTERRUPTED, "asked to stop before it began", ExitCode.ROLLED_BACK)
        note("the delivery is over; what it started is being stopped")
    assert result is not None, "a delivery ends with a result or with an error"
    return result


def _context(request: Request, plan: Plan, written: Written, host: FleetHost, engines: LocalEngines) -> Context:
    from engine_images.adapters.tokenizer import FileTokenizer

    records = request.state.traffic / f"{request.spec.metadata.name}.jsonl"
    users = RecordSource([records]) if _is_being_written(records) else None
    return Context(
        spec=request.spec,
        plan=plan,
        folder=request.folder,
        clock=SystemClock(),
        journal=written.journal,
        registry=request.registry,
        engines=engines,
        fleets={region: host.fleet(region) for region in plan.regions},
        chat=OpenAIChat(),
        tokenizer=FileTokenizer(),
        proxy=PrometheusSource(host.prometheus_url, settles_within=SCRAPE_TIMEOUT),
        trials=written.trials,
        users=users,
        requests=users,
        events=PrometheusEvents(host.prometheus_url),
        readers=readers_for(request.spec, request.folder),
    )


def _is_being_written(records: Path) -> bool:
    """Whether users' requests are being recorded now: a file from yesterday says nothing about this delivery."""
    return records.exists() and time.time() - records.stat().st_mtime < FRESH_SECONDS


@asynccontextmanager
async def fleet_of(spec: Delivery, state: StateFolder, *, keep: bool) -> AsyncIterator[FleetHost]:
    """The fleet that runs here, or one of our own that ends with us unless it is to be kept."""
    ports = on_this_machine(spec).ports
    regions = {region: ports.get(region) for region in spec.regions.names}
    host = await attach(state.root)
    if host is not None:
        _require_regions(host, regions)
        yield host
        return
    note("starting a fleet of our own")
    host = await start(state.root, regions, owned=not keep)
    try:
        yield host
    finally:
        if not keep:
            await host.stop()


def _require_regions(host: FleetHost, wanted: Iterable[str]) -> None:
    missing = sorted(set(wanted) - set(host.regions()))
    if missing:
        raise Refused(
            f"the fleet that runs here has the regions {', '.join(host.regions())}, not {missing[0]}",
            hint="stop it with `tidegate fleet down`",
        )


@asynccontextmanager
async def _heartbeat(ledger: MlflowLedger) -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            try:
                await asyncio.to_thread(ledger.beat)
            except TidegateError as error:
                # The next event fails too when it is for good, and ends the delivery in good order.
                note(f"no heartbeat: {error}")
            await asyncio.sleep(BEAT_SECONDS)

    task = asyncio.create_task(beat(), name=f"heartbeat of process {os.getpid()}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
