"""One delivery run from this machine, from the lock to the report."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from prometheus_client import Metric

from pipelines.adapters.chat import OpenAIChat
from pipelines.adapters.lock import delivery_lock
from pipelines.adapters.metrics_server import MetricsServer
from pipelines.context import Context
from pipelines.event_file import EventFile
from pipelines.exported import families
from pipelines.journal import Journal, Listener
from pipelines.kept_files import keep_spec
from pipelines.model import Ending, Plan, Result
from pipelines.records.apart import Apart
from pipelines.records.entries import passes
from pipelines.records.spool import Spool
from pipelines.records.writer import Limits, limits_of
from pipelines.rights import refuse_unanswerable
from pipelines.run import deliver
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from pipelines.trials import Trials
from pipelines.trust import Trusted
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_ledger import MlflowLedger
from registry.errors import StopAsked
from tidegate.cli.addresses import host_and_port
from tidegate.cli.carriers import carrier_of
from tidegate.cli.ci import Reports, errors_told
from tidegate.cli.commands.report import leave_report
from tidegate.cli.compose import make_plan_of, open_deliveries, open_registry, settled
from tidegate.cli.console import PlainConsole
from tidegate.cli.ground import Ground, Wanted, ground_of
from tidegate.cli.interrupt import cancelled_by_signals
from tidegate.cli.notify import outbox_for
from tidegate.cli.output import note, print_json
from tidegate.cli.progress import Progress, follow
from tidegate.cli.prover import Means, identities_here
from tidegate.cli.readers import readers_for
from tidegate.cli.trusted import trusted_beside, trusted_images
from tidegate.cli.view import summary
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, TidegateError

BEAT_SECONDS = 5.0


@dataclass(frozen=True)
class Request:
    """What the person asked for."""

    wanted: Wanted
    deliveries: MlflowDeliveries
    spec_path: Path
    spec_digest: str
    version: str | None
    """The version's number; None for the one that the alias points at."""
    metrics: tuple[str, int]
    """Host and port at which the delivery's own numbers are served."""


@dataclass(frozen=True)
class Written:
    """Where everything that happens is written down."""

    journal: Journal
    trials: Trials
    spec_file: str | None
    """Where the spec lies among the delivery's kept files."""


def run_delivery(
    spec: Delivery,
    spec_path: Path,
    state: Path,
    tracking_uri: str | None,
    *,
    as_json: bool,
    users: bool,
    keep: bool,
    version: str | None,
    metrics_address: str,
    reports: Reports,
    trusted: Trusted,
    means: Means,
) -> int:
    """Deliver `version`, or what the alias names; `users` plays users, `keep` leaves up a fleet that this starts."""
    progress = follow(PlainConsole(stderr=True), SystemClock(), plain=reports.plain)
    with errors_told(reports, lambda: progress.story):
        asker = means.prover
        refuse_unanswerable(spec, trusted.trust.approvers, requester_known=asker is not None)
        request = Request(
            wanted=Wanted(
                spec=spec,
                folder=spec_path.parent,
                state=StateFolder(state),
                registry=open_registry(state, tracking_uri),
                users=users,
                keep=keep,
                trusted=trusted_images(trusted_beside(spec_path.parent)),
                identities=identities_here(trusted),
                asker=asker,
            ),
            deliveries=open_deliveries(state, tracking_uri, spec_path.parent),
            spec_path=spec_path,
            spec_digest=sha256(spec_path.read_bytes()).hexdigest(),
            version=version,
            metrics=host_and_port(metrics_address),
        )
        result = _locked(request, progress)
    reports.tell(progress.story, result.delivery)
    if as_json:
        print_json(result.model_dump(mode="json") | {"report": str(_report(request, result.delivery))})
    else:
        PlainConsole().print(summary(progress.story))
        print(f"report: {_report(request, result.delivery)}")
    return int(result.exit_code)


def _report(request: Request, delivery: str) -> Path:
    return request.wanted.state.delivery(delivery) / "report.html"


def _locked(request: Request, progress: Progress) -> Result:
    """Nothing is opened or started before the lock is held and the plan stands."""
    wanted = request.wanted
    with delivery_lock(wanted.state.lock):
        plan = make_plan_of(wanted.spec, wanted.folder, wanted.registry, version=request.version)
        plan = settled(plan, wanted.spec, request.spec_path, wanted.registry, wanted.trusted)
        ledger = request.deliveries.open_delivery(plan.version, plan.champion, spec_digest=request.spec_digest)
        request = replace(request, wanted=replace(wanted, carrier=carrier_of(ledger, wanted.spec)))
        return asyncio.run(_carried(request, plan, ledger, _kept(ledger, request), progress))


async def _carried(
    request: Request, plan: Plan, ledger: MlflowLedger, spec_file: str | None, progress: Progress
) -> Result:
    """The delivery, and then its report: nobody waits for that."""
    wanted = request.wanted
    folder = wanted.state.delivery(ledger.delivery)
    events = EventFile(folder / "events.jsonl")

    def numbers() -> Iterable[Metric]:
        return families(progress.story, delivery=ledger.delivery)

    with ExitStack() as last:
        with (
            outbox_for(wanted.spec.notify, plan, ledger.delivery) as outbox,
            progress,
            Apart([events, progress]) as displays,
        ):
            listeners: list[Listener] = [displays, outbox]
            journal = last.enter_context(journal_of(wanted, ledger, listeners, limits_of(wanted.spec.patience)))
            written = Written(journal, Trials(folder, journal), spec_file)
            async with cancelled_by_signals(), heartbeat(journal.beat):
                result = await _in_fleet(request, plan, written, numbers)
        source = (ledger.delivery, events)
        leave_report(wanted.spec, wanted.state, source, _report(request, ledger.delivery), journal.attach)
        await journal.settle()
    return result


@contextmanager
def journal_of(
    wanted: Wanted, ledger: MlflowLedger, listeners: Sequence[Listener], limits: Limits
) -> Iterator[Journal]:
    """A journal whose records outlive this process, where its state folder does."""
    spool = Spool(wanted.state.unwritten, ledger.delivery)
    journal = Journal(ledger, SystemClock(), listeners, registry=wanted.registry, spool=spool, limits=limits)
    try:
        yield journal
    finally:
        journal.end()


def _kept(ledger: MlflowLedger, request: Request) -> str | None:
    """Where the spec lies among the kept files; a delivery without them goes on, but cannot be resumed."""
    try:
        return keep_spec(ledger, request.spec_path, request.wanted.spec)
    except TidegateError as error:
        note(f"the spec is not kept, so that `tidegate resume` will not be possible: {error}")
        return None


async def _in_fleet(request: Request, plan: Plan, written: Written, numbers: Callable[[], Iterable[Metric]]) -> Result:
    """The delivery inside its fleet. What goes wrong before it begins closes the ledger too."""
    result: Result | None = None
    try:
        async with AsyncExitStack() as stack:
            metrics = MetricsServer(numbers, *request.metrics)
            stack.push_async_callback(metrics.close)
            wanted = replace(request.wanted, images=plan.resolved.images if plan.resolved else {})
            ground = await stack.enter_async_context(ground_of(wanted, metrics))
            result = await deliver(context_of(wanted, plan, written, ground))
    except TidegateError as error:
        if result is None:
            return await written.journal.closed(Ending.FAILED, str(error), error.exit_code)
        note(f"the delivery is over, but what it started did not end well: {error}")
    except asyncio.CancelledError:
        if result is None:
            return await written.journal.closed(
                Ending.INTERRUPTED, "asked to stop before it began", ExitCode.INTERRUPTED
            )
        note("the delivery is over; what it started is being stopped")
    assert result is not None, "a delivery ends with a result or with an error"
    return result


def context_of(wanted: Wanted, plan: Plan, written: Written, ground: Ground) -> Context:
    from engine_images.adapters.tokenizer import FileTokenizer

    return Context(
        spec=wanted.spec,
        plan=plan,
        folder=wanted.folder,
        clock=SystemClock(),
        journal=written.journal,
        registry=wanted.registry,
        engines=ground.engines,
        fleets=ground.fleets,
        chat=OpenAIChat(),
        tokenizer=FileTokenizer(),
        proxy=ground.proxy,
        trials=written.trials,
        users=ground.users,
        requests=ground.users,
        events=ground.events,
        readers=readers_for(wanted.spec, wanted.folder),
        identities=wanted.identities,
        asker=wanted.asker,
        spec_file=written.spec_file,
    )


@asynccontextmanager
async def heartbeat(say: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Say every few seconds that this process lives; one that is asked there to stop is cancelled."""
    carrying = asyncio.current_task()
    assert carrying is not None, "only a task can be cancelled"

    async def beat() -> None:
        while True:
            try:
                await say()
            except StopAsked as asked:
                note(f"stopping: {asked}; every region goes back first")
                carrying.cancel()
                return
            except TidegateError as error:
                # The next event fails too when it is for good, and ends the delivery in good order; of a store that
                # is silent the journal tells.
                if not passes(error):
                    note(f"no heartbeat: {error}")
            await asyncio.sleep(BEAT_SECONDS)

    task = asyncio.create_task(beat(), name=f"heartbeat of process {os.getpid()}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
