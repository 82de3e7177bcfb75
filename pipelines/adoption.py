"""Takes over a Rollout of others, and gives it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

from pipelines.adapters.fleets import cluster_client
from pipelines.adapters.specs import on_clusters
from pipelines.plan.engines import adopted_record
from pipelines.plan.region_objects import place_of, rendering, routes_of
from pipelines.ports import VersionRegistry
from pipelines.spec.delivery import Delivery
from registry.model import Serving
from rollouts.adoption.adoption import Adoption, Tell
from rollouts.adoption.model import AdoptedVersion, Place, Write
from rollouts.adoption.takeover import takeover
from rollouts.adoption.writers import ReturningWriter, returning_writers
from rollouts.cluster.carrier import Carrier, keep_renewing
from rollouts.model import Engine
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError
from tidegate.core.process import process_name

PATIENCE = timedelta(seconds=30)
"""For a region that does not answer: a person waits, and may run it again."""


def adopt(
    spec: Delivery, region: str, registry: VersionRegistry, version: str | None, tell: Tell, *, dry_run: bool
) -> tuple[Sequence[Write], Sequence[ReturningWriter]]:
    """Take the region's Rollout over, as the champion of the model; with a dry run only say how.

    Args:
        spec: the delivery's.
        region: one of its fleet.
        registry: has the champion.
        version: that its pods serve; None for the champion.
        tell: hears of each write before it is sent.
        dry_run: write nothing.

    Returns:
        What was written, or would be; and the tools of others that would write it back.

    Raises:
        UsageError: the registry has no champion, or another version is.
        CannotAdopt: something is in the way in the cluster.
        FleetError: the cluster does not answer, or does not let us.
    """
    champion = registry.resolve(spec.model.name, spec.model.target)
    if version not in {None, champion.version}:
        raise UsageError(
            f"--version: found {version}; models:/{spec.model.name}@{spec.model.target} is version {champion.version}",
            hint=f"`tidegate model alias {spec.model.name} {version} {spec.model.target}` says which version serves",
        )
    who = AdoptedVersion(delivery=spec.metadata.name, region=region, version=champion.version, digest=champion.digest)
    sent: list[Write] = []

    async def take_over() -> tuple[Place, Sequence[Write]]:
        async with _opened(spec, region, who.version, who.digest) as adoption:
            place = await adoption.require(who)
            if dry_run:
                return place, tuple(takeover(place, who))
            await adoption.adopt(who, _keep(sent, tell))
            return await adoption.look(), sent

    place, writes = asyncio.run(take_over())
    if not dry_run and Serving.of(registry.tags(champion)).now is None:
        image, template = place.engine
        record = adopted_record(spec, champion, image=image, template=template)
        registry.mark(champion, Serving(now=record).tag)
    return writes, returning_writers([each for each in place.lives if each is not None])


def release(spec: Delivery, region: str, tell: Tell, *, dry_run: bool) -> Sequence[Write]:
    """Give the region's Rollout back as it was, while its Lease says that somebody does; returns the writes.

    Raises:
        CannotAdopt: nothing was adopted there, or a trial is under way.
        NotTheCarrier: somebody delivers there.
        FleetError: the cluster does not answer, or does not let us.
    """
    sent: list[Write] = []

    async def give_back() -> Sequence[Write]:
        async with _opened(spec, region) as adoption:
            planned = adoption.planned_release(await adoption.look())
            if dry_run:
                return planned
            renewing = asyncio.create_task(keep_renewing(adoption, SystemClock()))
            try:
                await adoption.release(_keep(sent, tell))
            finally:
                renewing.cancel()
                await asyncio.wait([renewing])
                await adoption.leave()
            return sent

    return asyncio.run(give_back())


def _keep(sent: list[Write], tell: Tell) -> Tell:
    def keep(write: Write) -> None:
        sent.append(write)
        tell(write)

    return keep


@asynccontextmanager
async def _opened(spec: Delivery, region: str, version: str = "0", digest: str = "") -> AsyncIterator[Adoption]:
    """The region, with the objects that a delivery applies there; the version changes no name."""
    fleet, clock = on_clusters(spec), SystemClock()
    engine = Engine(version=version, digest=digest, model=spec.metadata.name, image="none")
    wanted = rendering(spec, fleet, region)(engine)
    carrier = Carrier(token=uuid4().hex, who=process_name(), unattended_seconds=spec.fleet.unattended.total_seconds())
    config = place_of(spec, fleet, region, PATIENCE)
    async with cluster_client(fleet.regions[region].context, fleet.namespace) as cluster:
        yield Adoption(config, cluster=cluster, routes=routes_of(fleet), wanted=wanted, clock=clock, carrier=carrier)
