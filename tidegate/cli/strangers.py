"""What others have in a delivery's clusters, for commands that would rather not wait for a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

from pipelines.spec import Delivery
from pipelines.strangers import strangers_in
from rollouts.cluster.fleet import ArgoFleet
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Stranger
from tidegate.cli.clusters import open_clusters
from tidegate.cli.output import note
from tidegate.core.errors import TidegateError

LOOK_SECONDS = 5.0
"""A plan is made where no cluster can be reached too, such as in a pull request's pipeline."""


def found_in_clusters(spec: Delivery, fleet: ArgoFleetSpec) -> Mapping[str, Sequence[Stranger]]:
    """By region, of those that can be reached; of the others it is noted that nobody looked."""
    try:
        return asyncio.run(_found(spec, fleet))
    except TidegateError as error:
        note(f"the clusters were not looked at: {error}")
        return {}


async def _found(spec: Delivery, fleet: ArgoFleetSpec) -> Mapping[str, Sequence[Stranger]]:
    async with open_clusters(spec, fleet, patience=timedelta(0)) as fleets:
        looked = await asyncio.gather(*(_in_one(each) for each in fleets.values()))
    return {region: others for region, others in zip(fleets, looked, strict=True) if others}


async def _in_one(fleet: ArgoFleet) -> Sequence[Stranger]:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await strangers_in(fleet)
    except TimeoutError:
        note(f"{fleet.region} was not looked at: no answer within {LOOK_SECONDS:.0f} s")
    except TidegateError as error:
        note(f"{fleet.region} was not looked at: {error}")
    return ()
