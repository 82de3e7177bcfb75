"""Builds the backends of a delivery: fleets, engines, evidence; its spec's, or those that a program brings."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from gates.adapters.prometheus import PrometheusEvents, PrometheusSource
from gates.adapters.prometheus_queries import PrometheusQueries
from gates.adapters.records import RecordSource
from gates.analyses.burn_rate import EventSource
from gates.analyses.drift.spec import DriftGate, Feature
from gates.analyses.queries.reading import asking_prometheus
from gates.evidence.conventions import BY_ENGINE, POD
from gates.ports import EvidenceSource
from pipelines.adapters.chat import OpenAIChat
from pipelines.adapters.downloaded_engines import DownloadedEngines
from pipelines.adapters.load.process import LoadProcess, start_load
from pipelines.adapters.load.scratch import ScratchProcesses
from pipelines.adapters.metrics_server import MetricsServer
from pipelines.adapters.samples.local import LocalSamples
from pipelines.authority.engine_images import pem_of
from pipelines.plan.gates import rules_of
from pipelines.ports import Chat, EngineProvider, Fleet, Tokenizer, VersionRegistry
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from rollouts.adapters.host_client import FleetHost, start
from rollouts.cluster.carrier import Carrier
from rollouts.errors import FleetError
from rollouts.manifests.spec import ArgoFleetSpec
from slo.kubernetes.pod_monitor import scrape_timeout
from tidegate.app.process import note
from tidegate.app.wiring.engines.providers import engine_provider, require_engine_environment
from tidegate.app.wiring.fleets import running_host
from tidegate.app.wiring.model import Backends, BackendsOpener, DeliveryInputs, file_tokenizer
from tidegate.app.wiring.specs import on_this_machine
from tidegate.core.adapters.extras import require
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import Refused, TidegateError, UsageError

FRESH_SECONDS = 60.0


SCRAPE_TIMEOUT = timedelta(seconds=2)
"""Of the Prometheus on this machine: a sample has the time at which its scrape began."""


ON_THIS_MACHINE = ("uv", "starlette", "uvicorn")
"""Packages of a fleet here; first one that only the extra `local` has, so that all of it is named at once."""


@asynccontextmanager
async def open_backends(wanted: DeliveryInputs, metrics: MetricsServer | None = None) -> AsyncIterator[Backends]:
    """What the spec's fleet is; `metrics` are the delivery's own numbers, if any, for a Prometheus of ours to read."""
    fleet = wanted.spec.fleet
    async with (
        _cluster_backends(wanted, fleet)
        if isinstance(fleet, ArgoFleetSpec)
        else _local_backends(wanted, metrics) as ground
    ):
        yield ground


def require_local_fleet() -> None:
    """Be sure of the packages of a fleet here before anything is begun.

    Raises:
        NotInstalled: one is missing; says the command that installs it.
    """
    require(*ON_THIS_MACHINE)


def require_packages(opener: BackendsOpener, spec: Delivery | None = None) -> None:
    """Be sure of the packages of a delivery before anything is begun; a program with backends of its own brings them.

    Raises:
        NotInstalled: one of them is not here.
    """
    if opener is not open_backends:
        return
    if spec is not None and not isinstance(spec.fleet, ArgoFleetSpec):
        require_local_fleet()
    require("openai", "tokenizers")


def refuse_users_of_clusters(spec: Delivery, *, users: bool) -> None:
    """Users are played for a fleet on this machine only.

    Raises:
        UsageError: they are asked for, and the fleet is clusters.
    """
    if users and isinstance(spec.fleet, ArgoFleetSpec):
        raise UsageError(
            "--users generates load for a fleet on this machine only",
            hint="leave it out: a cluster's gateway does not say which version answered",
        )


async def refuse_unready_machine(spec: Delivery, state: StateFolder) -> None:
    """Look whether engines could be started here, in the regions of the spec; nothing of clusters.

    Raises:
        OutsideError: the engine environment is not there.
        Refused: the fleet that runs here has other regions.
    """
    if isinstance(spec.fleet, ArgoFleetSpec):
        return
    require_engine_environment(spec.engine)
    if host := await running_host(state.root):
        _require_regions(host, spec.regions.names)


@asynccontextmanager
async def _cluster_backends(wanted: DeliveryInputs, fleet: ArgoFleetSpec) -> AsyncIterator[Backends]:
    """Clusters that are there already, each with its own Prometheus."""
    refuse_users_of_clusters(wanted.spec, users=wanted.users)
    # Not above: most of it is Kubernetes' client, which a fleet on this machine never needs.
    from tidegate.app.wiring.clusters import open_clusters, open_samples

    places = {region: there.prometheus for region, there in fleet.regions.items()}
    keys = pem_of(wanted.trusted)
    async with (
        open_clusters(wanted.spec, fleet, carrier=wanted.carrier, public_keys=keys) as fleets,
        open_samples(wanted.spec, fleet) as samples,
    ):
        yield Backends(
            fleets=fleets,
            engines=engine_provider(wanted.spec, wanted.state, wanted.registry, wanted.images, wanted.trusted),
            proxy=PrometheusSource(
                places,
                settles_within=scrape_timeout(wanted.spec.scrape_interval),
                counting=BY_ENGINE,
                proxy_pod_label=POD,
                only={"service": wanted.spec.metadata.name},
                sources=wanted.spec.metrics.sources,
                service=wanted.spec.metadata.name,
            ),
            events=PrometheusEvents(places),
            queries=PrometheusQueries(places),
            samples=samples,
        )


@asynccontextmanager
async def _local_backends(wanted: DeliveryInputs, metrics: MetricsServer | None) -> AsyncIterator[Backends]:
    """The fleet that runs here, or one of our own."""
    spec, state = wanted.spec, wanted.state
    # First, because without the engine environment there is nothing to start a fleet for.
    engines = engine_provider(spec, state, wanted.registry)
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(host_of(spec, state, keep=wanted.keep))
        await stack.enter_async_context(fleet_heartbeat(host, wanted.carrier))
        await host.load_rules(rules_of(spec))
        if wanted.users:
            load = start_users(spec, wanted.folder, state, host)
            stack.push_async_callback(load.stop)
        if metrics:
            await stack.enter_async_context(prometheus_target(host, spec.metadata.name, metrics))
        records = state.traffic / f"{spec.metadata.name}.jsonl"
        yield Backends(
            fleets={region: host.fleet(region) for region in spec.regions.names},
            engines=engines,
            proxy=PrometheusSource(host.prometheus_url, settles_within=SCRAPE_TIMEOUT),
            events=PrometheusEvents(host.prometheus_url),
            scratch=ScratchProcesses(state.scratch, SystemClock()),
            queries=PrometheusQueries(host.prometheus_url),
            users=RecordSource([records]) if _is_being_written(records) else None,
            samples=LocalSamples(state.samples, spec.samples, SystemClock()) if spec.samples else None,
        )


def _is_being_written(records: Path) -> bool:
    """Whether users' requests are being recorded now: a file from yesterday says nothing about this delivery."""
    return records.exists() and time.time() - records.stat().st_mtime < FRESH_SECONDS


@asynccontextmanager
async def host_of(spec: Delivery, state: StateFolder, *, keep: bool) -> AsyncIterator[FleetHost]:
    """The fleet that runs here, or one of our own that ends with us unless it is to be kept."""
    on_this_machine(spec)
    host = await running_host(state.root)
    if host is not None:
        _require_regions(host, spec.regions.names)
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


def _require_regions(host: FleetHost, wanted: Iterable[str]) -> None:
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
async def fleet_heartbeat(host: FleetHost, carrier: Carrier | None) -> AsyncIterator[None]:
    """Within the context the host hears of `carrier`; afterwards of nobody, unless others go on with it."""
    if carrier is None:
        yield
        return
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
async def prometheus_target(host: FleetHost, name: str, server: MetricsServer) -> AsyncIterator[None]:
    """Let the fleet's Prometheus read `server` meanwhile, under that name, and once more at the end."""
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


@dataclass(frozen=True)
class OwnBackends:
    """What the program brings, and what it leaves to tidegate."""

    fleets: Mapping[str, Fleet]
    """By region."""
    evidence: EvidenceSource
    engines: EngineProvider | None = None
    """None for versions that are downloaded and proven, and started by the fleet."""
    events: EventSource | None = None
    chat: Chat | None = None
    tokenizer: Tokenizer | None = None
    clock: Clock = field(default_factory=SystemClock)

    def provider(self, spec: Delivery, state: StateFolder, registry: VersionRegistry) -> EngineProvider:
        """What makes a version ready for the fleets."""
        return self.engines or DownloadedEngines(registry=registry, state=state, name=spec.metadata.name)

    @asynccontextmanager
    async def open(self, inputs: DeliveryInputs, metrics: MetricsServer | None) -> AsyncIterator[Backends]:
        """A `BackendsOpener`; the program closes the fleets itself."""
        del metrics  # Read by the program's own Prometheus, if at all.
        yield Backends(
            fleets=self.fleets,
            engines=self.provider(inputs.spec, inputs.state, inputs.registry),
            proxy=self.evidence,
            events=self.events,
            chat=self.chat or OpenAIChat(),
            tokenizer=self.tokenizer or file_tokenizer(),
            clock=self.clock,
        )

    @asynccontextmanager
    async def standing(
        self, spec: Delivery, state: StateFolder, *, patience: timedelta | None = None, carrier: Carrier | None = None
    ) -> AsyncIterator[Mapping[str, Fleet]]:
        """A `FleetsOpener`: always the same."""
        del spec, state, patience, carrier
        yield self.fleets


def refuse_queries(spec: Delivery) -> None:
    """Say no to gates on queries: a program's own fleet brings evidence, and nobody who reads a Prometheus.

    Raises:
        UsageError: the spec has such a gate.
    """
    for gate in asking_prometheus(spec.gates.asked):
        kind = spec.gates.kind_of(gate).name
        raise UsageError(
            f"{spec.path}: gates.{gate}: found a gate of kind {kind}; expected none with a fleet of one's own",
            hint="leave the gate out: what it asks is read from the Prometheus of a fleet that tidegate brings",
        )


def refuse_other_regions(spec: Delivery, fleets: Mapping[str, Fleet]) -> None:
    """Compare the spec with fleets that the program brings.

    Raises:
        UsageError: a region has no fleet, or engines are asked to keep samples.
    """
    if spec.samples is not None:
        hint = "leave out `samples`, and the judge of the canary stage"
        raise UsageError("engines of a program's own fleets keep no samples of users' requests", hint=hint)
    missing = [region for region in spec.regions.names if region not in fleets]
    if missing:
        raise UsageError(f"no fleet for region {missing[0]}", hint=f"there are: {', '.join(fleets) or 'none'}")
