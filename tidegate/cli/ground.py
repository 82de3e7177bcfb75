"""What a delivery stands on: who serves, who makes engines, who counts. One way for each kind of fleet."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gates.adapters.prometheus import PrometheusSource
from gates.adapters.prometheus_events import PrometheusEvents
from gates.adapters.records import RecordSource
from gates.ports import EventSource, EvidenceSource
from gates.scraped.conventions import POD
from gates.scraped.counting import BY_ENGINE
from pipelines.adapters.metrics_server import MetricsServer
from pipelines.identity.ports import Identities, Prover
from pipelines.image_engines import ImageEngines
from pipelines.ports import Engines, Fleet
from pipelines.slos import rules_of
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from pipelines.trusted_images import TrustedImages, pem_of
from registry.adapters.mlflow_models import MlflowRegistry
from rollouts.adapters.host_client import FleetHost, attach, start
from rollouts.manifests.spec import ArgoFleetSpec
from slo.kubernetes.pod_monitor import scrape_timeout
from tidegate.cli.commands.traffic import start_users
from tidegate.cli.compose import local_engines, on_this_machine
from tidegate.cli.output import note
from tidegate.cli.own_metrics import read_by
from tidegate.core.errors import Refused, UsageError

if TYPE_CHECKING:
    from rollouts.cluster.lease import Carrier

FRESH_SECONDS = 60.0
SCRAPE_TIMEOUT = timedelta(seconds=2)
"""Of the Prometheus on this machine: a sample has the time at which its scrape began."""


@dataclass(frozen=True)
class Ground:
    """The adapters behind a delivery's ports."""

    fleets: Mapping[str, Fleet]
    """By region."""
    engines: Engines
    proxy: EvidenceSource
    events: EventSource
    users: RecordSource | None = None
    """What the users that are played write down."""


@dataclass(frozen=True)
class Wanted:
    """What the person asked for, as far as it matters here."""

    spec: Delivery
    folder: Path
    state: StateFolder
    registry: MlflowRegistry
    users: bool
    """Play users meanwhile."""
    keep: bool
    """Leave up a fleet that is started for this."""
    identities: Identities
    """Who can prove who they are."""
    asker: Prover | None = None
    """Proves who asks for this delivery; None where nobody does, or another process has."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Engine images that the plan settled, by the version's number."""
    trusted: TrustedImages | None = None
    """What an engine image has to be."""
    carrier: Carrier | None = None
    """Who carries the delivery in clusters."""


@asynccontextmanager
async def ground_of(wanted: Wanted, metrics: MetricsServer | None = None) -> AsyncIterator[Ground]:
    """What the spec's fleet is; `metrics` are the delivery's own numbers, if any, for a Prometheus of ours to read."""
    fleet = wanted.spec.fleet
    async with _clusters(wanted, fleet) if isinstance(fleet, ArgoFleetSpec) else _machine(wanted, metrics) as ground:
        yield ground


@asynccontextmanager
async def _clusters(wanted: Wanted, fleet: ArgoFleetSpec) -> AsyncIterator[Ground]:
    """Clusters that are there already, each with its own Prometheus."""
    if wanted.users:
        raise UsageError(
            "users are played for a fleet on this machine only",
            hint="leave --users out: a cluster's gateway does not say which version answered",
        )
    # Not above: most of it is Kubernetes' client, which a fleet on this machine never needs.
    from tidegate.cli.clusters import open_clusters

    urls = {region: there.prometheus.url for region, there in fleet.regions.items()}
    keys = pem_of(wanted.trusted)
    async with open_clusters(wanted.spec, fleet, carrier=wanted.carrier, public_keys=keys) as fleets:
        yield Ground(
            fleets=fleets,
            engines=engines_of(wanted.spec, wanted.state, wanted.registry, wanted.images, wanted.trusted),
            proxy=PrometheusSource(
                urls,
                settles_within=scrape_timeout(wanted.spec.scrape_interval),
                counting=BY_ENGINE,
                proxy_pod_label=POD,
                only={"service": wanted.spec.metadata.name},
            ),
            events=PrometheusEvents(urls),
        )


@asynccontextmanager
async def _machine(wanted: Wanted, metrics: MetricsServer | None) -> AsyncIterator[Ground]:
    """The fleet that runs here, or one of our own."""
    spec, state = wanted.spec, wanted.state
    # First, because without the engine environment there is nothing to start a fleet for.
    engines = engines_of(spec, state, wanted.registry)
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(host_of(spec, state, keep=wanted.keep))
        await host.load_rules(rules_of(spec))
        if wanted.users:
            load = start_users(spec, wanted.folder, state, host)
            stack.push_async_callback(load.stop)
        if metrics:
            await stack.enter_async_context(read_by(host, spec.metadata.name, metrics))
        records = state.traffic / f"{spec.metadata.name}.jsonl"
        yield Ground(
            fleets={region: host.fleet(region) for region in spec.regions.names},
            engines=engines,
            proxy=PrometheusSource(host.prometheus_url, settles_within=SCRAPE_TIMEOUT),
            events=PrometheusEvents(host.prometheus_url),
            users=RecordSource([records]) if _is_being_written(records) else None,
        )


def engines_of(
    spec: Delivery,
    state: StateFolder,
    registry: MlflowRegistry,
    images: Mapping[str, str] | None = None,
    trusted: TrustedImages | None = None,
) -> Engines:
    """What makes a model version ready for the spec's fleet; `images` are those that a plan settled."""
    if isinstance(spec.fleet, ArgoFleetSpec):
        name = spec.metadata.name
        return ImageEngines(registry=registry, state=state, name=name, images=images or {}, trusted=trusted)
    return local_engines(spec, state, registry)


def _is_being_written(records: Path) -> bool:
    """Whether users' requests are being recorded now: a file from yesterday says nothing about this delivery."""
    return records.exists() and time.time() - records.stat().st_mtime < FRESH_SECONDS


@asynccontextmanager
async def host_of(spec: Delivery, state: StateFolder, *, keep: bool) -> AsyncIterator[FleetHost]:
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
