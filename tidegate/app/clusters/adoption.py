"""Takes over what serves in a region, and gives it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from pipelines.adapters.fleets import cluster_client
from pipelines.adapters.specs import on_clusters, read_spec, region_of
from pipelines.adapters.stores import open_registry
from pipelines.plan.engines import adopted_record
from pipelines.plan.region_objects import place_of, rendering, routes_of
from pipelines.spec.delivery import Delivery
from registry.conventions import ENGINE_SERVING
from registry.model import EngineRecord, ModelVersion
from rollouts.adoption.adoption import Adoption
from rollouts.adoption.model import AdoptedVersion, Place, Write
from rollouts.adoption.takeover import takeover
from rollouts.adoption.writers import ReturningWriter, returning_writers
from rollouts.cluster.carrier import Carrier, keep_renewing
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError
from tidegate.core.process import process_name

PATIENCE = timedelta(seconds=30)
"""For a region that does not answer: a person waits, and may run it again."""

Tell = Callable[[Write], None]
"""Hears of each write before it is sent."""


@dataclass(frozen=True)
class AdoptionRequest:
    """Which region of which delivery."""

    spec: Path
    region: str | None
    """None for the fleet's only one."""
    dry_run: bool


@dataclass(frozen=True)
class AdoptionReport:
    """What was done, or would be, and who would undo it."""

    region: str
    delivery: str
    writes: tuple[Write, ...]
    writers: tuple[ReturningWriter, ...] = ()
    """Tools of others that would write the adopted objects back."""
    next_step: str = ""


def adopt_rollout(
    asked: AdoptionRequest, version: str | None, state: Path, tracking_uri: str | None, tell: Tell
) -> AdoptionReport:
    """Take the region's Rollout over, as the champion of the model; with a dry run only say how.

    Args:
        asked: which region.
        version: that its pods serve; None for the champion.
        state: the folder with what is this machine's own.
        tracking_uri: of the registry.
        tell: hears of each write, not in a dry run.

    Raises:
        UsageError: the registry has no champion, or another version is.
        CannotAdopt: something is in the way in the cluster.
        FleetError: the cluster does not answer, or does not let us.
    """
    spec, registry = read_spec(asked.spec), open_registry(state, tracking_uri)
    champion = registry.resolve(spec.model.name, spec.model.target)
    if version not in {None, champion.version}:
        raise UsageError(
            f"--version: found {version}; models:/{spec.model.name}@{spec.model.target} is version {champion.version}",
            hint=f"`tidegate model alias {spec.model.name} {version} {spec.model.target}` says which version serves",
        )
    place, report = asyncio.run(_adopt(asked, spec, champion, tell))
    if not asked.dry_run and EngineRecord.kept(registry.tags(champion).get(ENGINE_SERVING)) is None:
        registry.mark(champion, {ENGINE_SERVING: _record(spec, champion, place).json_text})
    return report


def release_rollout(asked: AdoptionRequest, tell: Tell) -> AdoptionReport:
    """Give the region's Rollout back as it was; with a dry run only say how.

    Raises:
        CannotAdopt: nothing was adopted there, or a trial is under way.
        NotTheCarrier: somebody delivers there.
        FleetError: the cluster does not answer, or does not let us.
    """
    return asyncio.run(_release(asked, read_spec(asked.spec), tell))


async def _adopt(
    asked: AdoptionRequest, spec: Delivery, champion: ModelVersion, tell: Tell
) -> tuple[Place, AdoptionReport]:
    name, told = spec.metadata.name, _Told(tell)
    async with _opened(spec, asked, champion) as adoption:
        who = AdoptedVersion(delivery=name, region=adoption.region, version=champion.version, digest=champion.digest)
        place = await adoption.require(who)
        writes = tuple(takeover(place, who))
        if not asked.dry_run:
            await adoption.adopt(who, told)
            place, writes = await adoption.look(), tuple(told.writes)
    touched = [each for each in place.lives if each is not None]
    next_step = "deliver the next version: `tidegate deliver`; give it back: `tidegate rollout release`"
    return place, AdoptionReport(adoption.region, name, writes, returning_writers(touched), next_step)


async def _release(asked: AdoptionRequest, spec: Delivery, tell: Tell) -> AdoptionReport:
    name, told = spec.metadata.name, _Told(tell)
    async with _opened(spec, asked, None) as adoption:
        writes = adoption.planned_release(await adoption.look())
        if not asked.dry_run:
            await _renewed(adoption, told)
            writes = tuple(told.writes)
    return AdoptionReport(adoption.region, name, writes)


async def _renewed(adoption: Adoption, told: Tell) -> None:
    """Release, while its Lease says that somebody does."""
    renewing = asyncio.create_task(keep_renewing(adoption, SystemClock()))
    try:
        await adoption.release(told)
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
        await adoption.leave()


class _Told:
    """Keeps what was told."""

    def __init__(self, tell: Tell) -> None:
        self.writes: list[Write] = []
        self._tell = tell

    def __call__(self, write: Write) -> None:
        self.writes.append(write)
        self._tell(write)


@asynccontextmanager
async def _opened(spec: Delivery, asked: AdoptionRequest, serving: ModelVersion | None) -> AsyncIterator[Adoption]:
    """The region, with the objects that a delivery of that version applies there; which one changes no name."""
    fleet: ArgoFleetSpec = on_clusters(spec)
    name = region_of(fleet, asked.region)
    version, digest = (serving.version, serving.digest) if serving else ("0", "")
    engine = Engine(version=version, digest=digest, model=spec.metadata.name, image="none")
    carrier = Carrier(token=uuid4().hex, who=process_name(), unattended_seconds=spec.fleet.unattended.total_seconds())
    config, clock = place_of(spec, fleet, name, PATIENCE), SystemClock()
    async with cluster_client(fleet.regions[name].context, fleet.namespace) as cluster:
        wanted = rendering(spec, fleet, name)(engine)
        yield Adoption(config, cluster=cluster, routes=routes_of(fleet), wanted=wanted, clock=clock, carrier=carrier)


def _record(spec: Delivery, champion: ModelVersion, place: Place) -> EngineRecord:
    image, template = place.engine
    return adopted_record(spec, champion, image=image, template=template)
