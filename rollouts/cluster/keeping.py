"""Says in a region, every few seconds, that its delivery is carried."""

from __future__ import annotations

import logging

from rollouts.cluster.fleet import ArgoFleet
from rollouts.errors import FleetError
from tidegate.core.clock import Clock

RENEW_SECONDS = 10.0
"""Far less than `lease.LIVE_SECONDS`: a request or two may be lost."""

log = logging.getLogger(__name__)


async def keep_renewing(fleet: ArgoFleet, clock: Clock) -> None:
    """Renew the Lease until the task is cancelled. A region that is away is asked again with the next beat."""
    while True:
        await clock.sleep(RENEW_SECONDS)
        try:
            await fleet.renew()
        except FleetError as error:
            log.info("%s: the Lease was not renewed: %s", fleet.region, error)
