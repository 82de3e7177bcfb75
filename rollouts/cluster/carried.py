"""What every fleet on Kubernetes has in common: a region whose delivery one process at a time carries."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine

from rollouts.cluster.carrier import Fence
from rollouts.cluster.model import Place
from rollouts.errors import FleetError, NotOurs
from rollouts.kube.retry import RetryPolicy
from rollouts.model import CarrierHeartbeat, Engine, ForeignObject, RegionState
from tidegate.core.clock import Clock

log = logging.getLogger(__name__)


class CarriedRegion(ABC):
    """A `Fleet` in a cluster, with the Lease of the one who carries its delivery."""

    region: str

    def __init__(self, place: Place, fence: Fence, clock: Clock) -> None:
        self._fence = fence
        self._retries = RetryPolicy(clock, seconds=place.retry_seconds, within=place.operation_seconds)

    @abstractmethod
    async def observe(self) -> RegionState:
        """What the region is doing."""

    @abstractmethod
    async def deploy(self, engine: Engine) -> RegionState:
        """As `Fleet.deploy`."""

    @abstractmethod
    async def mirror(self, percent: int) -> RegionState:
        """As `Fleet.mirror`."""

    @abstractmethod
    async def shift(self, weight: int) -> RegionState:
        """As `Fleet.shift`."""

    @abstractmethod
    async def promote(self) -> RegionState:
        """As `Fleet.promote`."""

    @abstractmethod
    async def rollback(self, to: str | None) -> RegionState:
        """As `Fleet.rollback`."""

    @abstractmethod
    async def foreign_objects(self) -> tuple[ForeignObject, ...]:
        """Objects of others where this delivery's would be.

        Raises:
            Unfit: what the spec names by reference is not as the spec says.
        """

    @abstractmethod
    async def engine_of(self, version: str) -> Engine | None:
        """The engine of a version that served here before, as the region itself knows it; None when it does not."""

    @abstractmethod
    async def restart(self, version: str) -> RegionState:
        """All users to a version of before that is no longer warm, as the region itself keeps it.

        Raises:
            NotPossible: the region keeps nothing of it.
            EngineDidNotStart: it did not come up; users are where they were.
        """

    def series_of(self, version: str) -> str | None:  # noqa: ARG002  # fleets of others tell them apart otherwise
        """What series of a version have in the label that tells versions apart; None where that is the version."""
        return None

    async def carried(self) -> CarrierHeartbeat | None:
        """Who holds the region's Lease; None when nobody does."""
        return await self._retries.run(self._fence.holder)

    async def way_back(self) -> str:
        """The version that served before the delivery that is open here; empty where none is."""
        return await self._retries.run(self._fence.way_back)

    async def settle(self) -> None:
        """The delivery is over, and what serves stays: from now on there is no way back by itself.

        Raises:
            NotTheCarrier: somebody else has the region by now.
            FleetError: the API server does not answer, or does not let us.
        """
        await self._retries.run(self._settle)

    async def renew(self) -> None:
        """Say in the region that its delivery is carried; nothing where it has not begun.

        Raises:
            FleetError: the API server does not answer, or does not let us.
        """
        await self._fence.renew()

    async def leave(self) -> None:
        """End this process' part: the Lease is released. Never raises."""
        await self._fence.leave()

    @abstractmethod
    async def _settle(self) -> None: ...

    async def _back_first(self, users: Coroutine[object, object, None]) -> None:
        """Users are sent back while the Lease is taken, by who insists on going back."""
        said: list[object] = [*await asyncio.gather(users, self._fence.take(), return_exceptions=True)]
        # Marking comes after: it is a write to the very objects that users are moved by, if they are ours.
        if not any(isinstance(failed, NotOurs) for failed in said):
            said += await asyncio.gather(self._fence.enter(), return_exceptions=True)
        for failed in said:
            if isinstance(failed, FleetError):
                # What stands in the way of going back is met again, and said, by what follows.
                log.warning("%s: going back all the same: %s", self.region, failed)
            elif isinstance(failed, BaseException):
                raise failed

    async def _note_way_back(self, served: str, version: str) -> None:
        """What serves now, unless `version` is what a delivery that was left half done goes back to."""
        if served != version and await self._fence.way_back() != version:
            await self._fence.note_way_back(served)
