"""The one place that builds what a delivery needs: a spec becomes its context, or every reason why it cannot begin."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from pathlib import Path

from gates.adapters.command import ask_command
from gates.adapters.prometheus import PrometheusSource
from gates.adapters.records import RecordSource
from gates.analyses.queries import QuerySource, asking_prometheus
from pipelines.adapters.chat import OpenAIChat
from pipelines.adapters.clusters import engines_of
from pipelines.adapters.engines import engine_provider, require_gpus_here
from pipelines.adapters.fleets import require_contexts, running_host
from pipelines.adapters.load.process import LocustLoads
from pipelines.adapters.samples import LocalSamples
from pipelines.adapters.services import readers_for
from pipelines.adapters.this_machine import (
    ON_THIS_MACHINE,
    SCRAPE_TIMEOUT,
    fleet_heartbeat,
    host_of,
    is_being_written,
    prometheus_target,
    require_regions,
    start_users,
)
from pipelines.authority.answering import refuse_unanswerable
from pipelines.authority.engine_images import pem_of
from pipelines.delivery_lock import refuse_second
from pipelines.events.artifacts import Trials
from pipelines.events.journal import Journal
from pipelines.events.listeners import DeliveryDisplay
from pipelines.model import Plan
from pipelines.plan.gates import rules_of
from pipelines.ports import Fleet, Tokenizer
from pipelines.run.context import Backends, Context
from pipelines.run.git import git_access_for, refuse_unwritable
from pipelines.run.stages import STAGES
from pipelines.spec.delivery import Delivery
from pipelines.statements import Prover
from pipelines.views.metrics import families, served_metrics
from registry.ledger import MlflowLedger
from registry.model import DeliverySummary
from rollouts.cluster.carrier import Carrier
from rollouts.manifests.spec import ClusterFleetSpec
from slo.kubernetes.pod_monitor import scrape_timeout
from tidegate.core.adapters.extras import require
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.metrics import MetricSource, PresetName
from tidegate.core.process import process_name
from tidegate.planning import images_of, require_assessments
from tidegate.surroundings import Surroundings


def file_tokenizer() -> Tokenizer:
    """What reads the chat template of a version's files; it loads what that takes."""
    from engine_images.adapters.model_version import FileTokenizer

    return FileTokenizer()


@dataclass(frozen=True)
class Carried:
    """A delivery that has a ledger, as the process that carries it knows it."""

    at: Surroundings
    ledger: MlflowLedger
    plan: Plan
    spec: Delivery
    spec_file: str | None
    """Where the spec lies among the delivery's kept files; None when it could not be kept."""
    asker: Prover | None = None
    """Proves who asks for this delivery; None where nobody does, or another process has."""
    known: DeliverySummary | None = None
    """As another process opened it; None where this one has."""
    hands_on: bool = False
    """Other processes go on after this one."""

    @property
    def patience(self) -> timedelta:
        """Until the next process must be heard of; zero when this one carries the delivery to its end."""
        return timedelta(seconds=self.known.patience_seconds if self.known else 0)

    @property
    def carrier(self) -> Carrier:
        """Who carries it: this process, alone or as one of several.

        A trial goes on unattended at least as long as `patience`, the silence between two steps.
        """
        return Carrier(
            token=self.ledger.owner,
            who=process_name(),
            over=self.ledger.over,
            hands_on=self.hands_on,
            continues=self.known is not None,
            unattended_seconds=max(self.spec.fleet.unattended, self.patience).total_seconds(),
            key=(self.known and self.known.key) or "",
        )

    @property
    def folder(self) -> Path:
        """What is the delivery's own on this machine."""
        return self.at.state.delivery(self.ledger.delivery)


@dataclass(frozen=True)
class Carrying:
    """How a process carries a delivery, who follows it, and what else it does on this machine meanwhile."""

    display: DeliveryDisplay
    interrupts: Callable[[], AbstractAsyncContextManager[asyncio.Event]]
    """Who may cancel what runs within the context; the event is set when they wait no longer for its end."""
    users: bool = False
    """It plays the users that the spec describes."""
    metrics: tuple[str, int] | None = None
    """Host and port at which the delivery's own numbers are served; None for nowhere."""
    closes: bool = False
    """It ends the delivery, and is not kept from that by being asked to."""
    report: bool = True
    """It leaves a report behind."""


@asynccontextmanager
async def connect(
    carried: Carried, how: Carrying, journal: Journal, impatient: asyncio.Event
) -> AsyncIterator[Context]:
    """What the steps of a delivery are given, for as long as they run.

    `impatient` is set when a person waits no longer for regions that do not let themselves be rolled back.

    Raises:
        TidegateError: a fleet cannot be opened.
    """
    at, spec, folder, ground = carried.at, carried.spec, carried.spec.path.parent, carried.at.own
    async with AsyncExitStack() as stack:
        address: str | None = None
        if how.metrics is not None:
            served = served_metrics(lambda: families(how.display.story, delivery=carried.ledger.delivery), *how.metrics)
            address = await stack.enter_async_context(served)
        # The fleets of a program are closed by it.
        if ground is None and isinstance(spec.fleet, ClusterFleetSpec):
            ground = await stack.enter_async_context(_clusters(carried, spec.fleet))
        elif ground is None:
            ground = await stack.enter_async_context(_this_machine(carried, how, address))
        yield Context(
            **vars(ground),
            spec=spec,
            plan=carried.plan,
            stages=STAGES,
            folder=folder,
            journal=journal,
            registry=at.registry,
            trials=Trials(carried.folder, journal),
            own=carried.folder,
            loads=LocustLoads(carried.folder / "load").block,
            readers=readers_for(spec),
            commands=partial(ask_command, folder=folder, environment=os.environ),
            identities=at.identities,
            git=git_access_for(spec, ground.clock),
            asker=carried.asker,
            spec_file=carried.spec_file,
            impatient=impatient,
        )


@asynccontextmanager
async def _clusters(carried: Carried, fleet: ClusterFleetSpec) -> AsyncIterator[Backends]:
    """Clusters that are there already, each with its own Prometheus."""
    # Not above: most of it is Kubernetes' client, which a fleet on this machine never needs.
    from pipelines.adapters.clusters import open_clusters, open_samples, series_of

    at, spec = carried.at, carried.spec
    places = {region: there.prometheus for region, there in fleet.regions.items()}
    async with (
        open_clusters(
            spec,
            fleet,
            carrier=carried.carrier,
            public_keys=pem_of(at.images),
            engines=engines_of(carried.plan, spec, carried.plan.resolved.images),
        ) as fleets,
        open_samples(spec, fleet) as samples,
    ):
        metrics = PrometheusSource(
            places,
            settles_within=scrape_timeout(spec.scrape_interval),
            sources=spec.sources or (MetricSource(preset=PresetName.VLLM),),
            service=spec.metadata.name,
            known_as=series_of(fleets),
        )
        yield Backends(
            fleets=fleets,
            engines=engine_provider(spec, at.state, at.registry, carried.plan.resolved.images, at.images),
            proxy=metrics,
            chat=OpenAIChat(),
            tokenizer=file_tokenizer(),
            clock=SystemClock(),
            queries=metrics,
            samples=samples,
        )


@asynccontextmanager
async def _this_machine(carried: Carried, how: Carrying, metrics: str | None) -> AsyncIterator[Backends]:
    """The fleet that runs here, or one of our own."""
    at, spec = carried.at, carried.spec
    # First, because without the engine environment there is nothing to start a fleet for.
    engines = engine_provider(spec, at.state, at.registry)
    async with host_of(spec, at.state) as host, fleet_heartbeat(host, carried.carrier):
        await host.load_rules(rules_of(spec))
        users = start_users(spec, spec.path.parent, at.state, host) if how.users else None
        written = at.state.traffic / f"{spec.metadata.name}.jsonl"
        records = RecordSource([written]) if is_being_written(written) else None
        counted = PrometheusSource(host.prometheus_url, settles_within=SCRAPE_TIMEOUT)
        try:
            async with prometheus_target(host, spec.metadata.name, metrics):
                yield Backends(
                    fleets={region: host.fleet(region) for region in spec.regions.names},
                    engines=engines,
                    proxy=counted,
                    chat=OpenAIChat(),
                    tokenizer=file_tokenizer(),
                    clock=SystemClock(),
                    queries=counted,
                    users=records,
                    samples=LocalSamples(at.state.samples, spec.samples, SystemClock()) if spec.samples else None,
                )
        finally:
            if users is not None:
                await users.stop()


class Lies(Enum):
    """Where a reason lies: who has to know of it."""

    SPEC = auto()
    """In the spec, the versions, or what they name: wherever the delivery is carried."""
    RIGHTS = auto()
    """In what this process may do elsewhere: whoever carries the delivery with the same rights."""
    HERE = auto()
    """In this machine, or in what runs now."""


@dataclass(frozen=True)
class Reason:
    """Why a delivery cannot begin."""

    error: TidegateError
    lies: Lies


class CannotBegin(UsageError):
    """Several reasons at once, a line each; the exit code is that of the first."""

    has_places = True

    def __init__(self, reasons: list[Reason]) -> None:
        super().__init__("\n".join(f"tidegate: {each.error}" for each in reasons))
        self.exit_code = reasons[0].error.exit_code  # type: ignore[misc]  # as the first of them alone would have


def refuse(reasons: Iterator[Reason]) -> None:
    """Raise them, if there are any.

    Raises:
        TidegateError: the only one, or `CannotBegin`.
    """
    found = list(reasons)
    if len(found) == 1:
        raise found[0].error
    if found:
        raise CannotBegin(found)


def preconditions(
    at: Surroundings,
    spec: Delivery,
    plan: Plan | None = None,
    *,
    users: bool = False,
    asker: Prover | None = None,
) -> Iterator[Reason]:
    """Why a delivery by this plan could not begin, each reason with its place and remedy; without one, what is known
    before anything outside this machine is asked.

    Writes nothing, starts nothing, asks nobody for a proof; what reads clusters is `foreign_objects`. Memory, cores and
    ports of this machine are left to the engines' start. `users` are those that it would play, `asker` proves who asks
    for it.
    """
    here, there = partial(_reasons, Lies.HERE), partial(_reasons, Lies.SPEC)
    yield from there(partial(refuse_unanswerable, spec.approvals, at.trusted.trust.approvers, asked=asker is not None))
    if at.own is None:
        local = () if isinstance(spec.fleet, ClusterFleetSpec) else ON_THIS_MACHINE
        yield from here(partial(require, *local, "tokenizers"))
        if users and not local:
            hint = "leave it out: a cluster's gateway does not say which version answered"
            yield Reason(UsageError("--users generates load for a fleet on this machine only", hint=hint), Lies.HERE)
        yield from here(partial(require_contexts, spec, every=True))
        yield from there(partial(require_gpus_here, spec))
    yield from here(partial(refuse_second, at.state.lock))
    if plan is None:
        return

    async def ready_machine() -> None:
        # Not above: a fleet on this machine alone needs it.
        from engine_images.adapters.environment import find_engine_environment

        find_engine_environment(spec.engine.accelerator.platform)
        if host := await running_host(at.root):
            require_regions(host, spec.regions.names)

    clusters = isinstance(spec.fleet, ClusterFleetSpec)
    if at.own is None and not clusters:
        yield from here(lambda: asyncio.run(ready_machine()))
    yield from here(lambda: at.deliveries(leftovers=False).refuse_live(spec.model.name))
    yield from there(lambda: images_of(plan, spec, at.registry, at.images))
    yield from there(lambda: require_assessments(spec, plan, at.registry))
    yield from _reasons(Lies.RIGHTS, partial(refuse_unwritable, spec))


def _reasons(lies: Lies, check: Callable[[], object]) -> Iterator[Reason]:
    try:
        check()
    except TidegateError as error:
        yield Reason(error, lies)


def refuse_unlike(spec: Delivery, fleets: Mapping[str, Fleet], queries: QuerySource | None = None) -> None:
    """Compare the spec with fleets that a program brings.

    Raises:
        UsageError: a region has no fleet, engines are asked to keep samples, or a gate asks a Prometheus
            and no `queries` answer it.
    """
    if spec.samples is not None:
        hint = "leave out `samples`, and the gates of users' answers"
        raise UsageError("engines of a program's own fleets keep no samples of users' requests", hint=hint)
    missing = [region for region in spec.regions.names if region not in fleets]
    if missing:
        raise UsageError(f"no fleet for region {missing[0]}", hint=f"there are: {', '.join(fleets) or 'none'}")
    for gate in () if queries else asking_prometheus(spec.gates.asked):
        kind = spec.gates.kind_of(gate).name
        raise UsageError(
            f"{spec.path}: gates.{gate}: found a gate of kind {kind}; expected none with a fleet of one's own",
            hint="leave the gate out, or give `connect` the `queries` that answer it",
        )
