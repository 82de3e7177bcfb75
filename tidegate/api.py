"""What a program does with tidegate: what commands do, in an event loop of its own and without signals.

`connect` says what a delivery runs on; `plan`, `deliver`, `resume`, `rollback` and `status` do what the commands of
these names do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gates.analyses.queries import QuerySource
from gates.ports import EvidenceSource
from pipelines.adapters.chat import OpenAIChat
from pipelines.adapters.engines import DownloadedEngines
from pipelines.adapters.specs import read_delivery
from pipelines.adapters.this_machine import host_of
from pipelines.events.listeners import DeliveryDisplay
from pipelines.model import Plan, Result
from pipelines.ports import Chat, EngineProvider, Fleet, Tokenizer
from pipelines.run.context import Backends
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import LocalFleet as LocalFleetSpec
from pipelines.statements import Prover
from pipelines.views.status import StatusReport
from registry.model import Event, ModelVersion
from tidegate.connect import Carrying, file_tokenizer, refuse_unlike
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import UsageError
from tidegate.delivering import deliver as run_delivery
from tidegate.delivering import resume as resume_delivery
from tidegate.planning import plan_for
from tidegate.standing import status as read_status
from tidegate.surroundings import Surroundings
from tidegate.way_back import RollbackOutcome, take_back

Listener = Callable[[Event], object]
"""Hears each event of a delivery, in order, in a thread of its own."""


def load_spec(path: str | Path) -> Delivery:
    """Read a `delivery.yaml` and every file that it names.

    Raises:
        SpecError: with every problem, each with its line.
    """
    return read_delivery(Path(path))


def register(
    name: str,
    source: str | Path,
    *,
    alias: str | None = None,
    state: str | Path | None = None,
    tracking_uri: str | None = None,
) -> ModelVersion:
    """Make a model's next version, or adopt one that others logged, with a digest of every file.

    Args:
        name: of the registered model.
        source: a Hugging Face folder, hf://ORGANISATION/NAME@REVISION, or a version's number or alias.
        alias: for the version, such as `challenger`.
        state: the folder of this machine's state; TIDEGATE_STATE or `.tidegate` when None.
        tracking_uri: of MLflow; MLFLOW_TRACKING_URI, or a store in `state`, when None.

    Raises:
        UnfitModel: there is no folder that tidegate serves, or there are several.
    """
    registry = _surroundings(state, tracking_uri).registry
    return registry.add(name, str(source), alias=alias)


def plan(
    spec: Delivery,
    version: str | None = None,
    *,
    state: str | Path | None = None,
    tracking_uri: str | None = None,
) -> Plan:
    """What a delivery would do, in order, of the version with that number or the one behind the alias `model.from`.

    Raises:
        PlanRefused: a gate could not decide in the time of its stage.
    """
    return plan_for(spec, _surroundings(state, tracking_uri, spec).registry, version=version, preview=True)


@dataclass(frozen=True)
class Connection:
    """What deliveries of a spec run on, from `connect`."""

    spec: Delivery
    at: Surroundings
    running: set[asyncio.Task[Result]] = field(default_factory=set)
    """Deliveries of this program."""

    def end_running(self) -> bool:
        """Ask the deliveries of this program to end, as a cancellation does; whether there is one."""
        for task in self.running:
            task.cancel()
        return bool(self.running)


@asynccontextmanager
async def connect(
    spec: Delivery,
    *,
    fleets: Mapping[str, Fleet] | None = None,
    evidence: EvidenceSource | None = None,
    engines: EngineProvider | None = None,
    queries: QuerySource | None = None,
    chat: Chat | None = None,
    tokenizer: Tokenizer | None = None,
    clock: Clock | None = None,
    state: str | Path | None = None,
    tracking_uri: str | None = None,
) -> AsyncIterator[Connection]:
    """What the spec's fleet needs, for as long as the context: the fleet on this machine is up within.

    Args:
        spec: from `load_spec`.
        fleets: by region, instead of the fleet that the spec describes. All that follows up to `clock` is for these.
        evidence: who counts requests, failures and times of both versions there.
        engines: makes a version ready; when None its files are downloaded, and `Engine.workdir` is where they are.
        queries: answers what gates ask a Prometheus, the queries of an SLO among it.
        chat: asks one engine; by its OpenAI-compatible API when None.
        tokenizer: what the registered files say a conversation's tokens are; by their chat template when None.
        clock: where time comes from.
        state: the folder of this machine's state; TIDEGATE_STATE or `.tidegate` when None.
        tracking_uri: of MLflow; MLFLOW_TRACKING_URI, or a store in `state`, when None.

    Raises:
        UsageError: a region has no fleet, fleets come without evidence, or the spec asks samples of their engines.
    """
    at = _surroundings(state, tracking_uri, spec)
    async with AsyncExitStack() as stack:
        if fleets is not None:
            if evidence is None:
                raise UsageError("fleets of one's own need `evidence`", hint="such as tidegate.PrometheusSource(urls)")
            refuse_unlike(spec, fleets, queries)
            own = Backends(
                fleets=fleets,
                engines=engines or DownloadedEngines(registry=at.registry, state=at.state, name=spec.metadata.name),
                proxy=evidence,
                chat=chat or OpenAIChat(),
                tokenizer=tokenizer or file_tokenizer(),
                clock=clock or SystemClock(),
                queries=queries,
            )
            at = replace(at, own=own)
        elif isinstance(spec.fleet, LocalFleetSpec):
            await stack.enter_async_context(host_of(spec, at.state))
        yield Connection(spec, at)


async def deliver(
    backends: Connection,
    version: str | None = None,
    *,
    listeners: Sequence[Listener] = (),
    requester: Prover | None = None,
) -> Result:
    """Deliver the version with that number or the one behind the alias `model.from`, or roll it back.

    A cancellation takes every region back first; a second one no longer waits for regions that do not answer.

    Args:
        backends: from `connect`.
        version: its number.
        listeners: called with each event, in order, in a thread of their own.
        requester: proves who asks for the delivery, for approvals that need another person.

    Raises:
        PlanRefused: a gate could not decide in the time of its stage.
        DeliveryRuns: another delivery of this model, or on this machine, is under way.
    """
    impatient = asyncio.Event()
    how = Carrying(DeliveryDisplay(listeners), lambda: nullcontext(impatient))
    carried = run_delivery(backends.at, backends.spec, how, version=version, asker=requester)
    return await _run(backends, carried, impatient)


async def resume(
    delivery: str,
    backends: Connection,
    *,
    by: str | None = None,
    prover: Prover | None = None,
    listeners: Sequence[Listener] = (),
) -> Result:
    """Carry a delivery whose process died to its end; finished steps are skipped. Cancelled as `deliver`.

    Args:
        delivery: its id.
        backends: from `connect`.
        by: who resumes it, where the spec says that a name is enough.
        prover: proves who does.
        listeners: as for `deliver`.

    Raises:
        TidegateError: it is over or is carried by a process, its spec was not kept, or the caller may not.
    """
    impatient = asyncio.Event()
    how = Carrying(DeliveryDisplay(listeners), lambda: nullcontext(impatient))
    return await _run(backends, resume_delivery(backends.at, delivery, how, by=by, prover=prover), impatient)


async def rollback(
    backends: Connection, *, to: str | None = None, regions: Sequence[str] = (), start: bool = False
) -> RollbackOutcome:
    """Take every region back: users first, then the delivery that runs, then the records. Idempotent.

    A delivery of this program is cancelled; one of another process of this machine gets SIGTERM, and one elsewhere
    a word in its ledger.

    Args:
        backends: from `connect`.
        to: `previous` or a version's number; None for the version that production had before the delivery.
        regions: only these; all when empty.
        start: with `to`: start that version where it is not warm.
    """
    at, spec = backends.at, backends.spec
    return await take_back(at, spec, to=to, start=start, regions=regions, end_own=backends.end_running)


async def status(backends: Connection) -> StatusReport:
    """The last delivery, and what every region serves. Changes nothing."""
    return await read_status(backends.at, backends.spec)


async def _run(backends: Connection, carried: Coroutine[Any, Any, Result], impatient: asyncio.Event) -> Result:
    """A delivery in a task of its own: a caller that is cancelled waits until every region is back."""
    task, cancelled = asyncio.create_task(carried), False
    backends.running.add(task)
    try:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                impatient.set() if cancelled else task.cancel()
                cancelled = True
    finally:
        backends.running.discard(task)
    if cancelled:
        task.cancelled() or task.exception()
        raise asyncio.CancelledError
    return task.result()


def _surroundings(state: str | Path | None, tracking_uri: str | None, spec: Delivery | None = None) -> Surroundings:
    return Surroundings(
        Path(state or os.environ.get("TIDEGATE_STATE") or ".tidegate"),
        tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or None,
        spec.path.parent if spec else None,
    )
