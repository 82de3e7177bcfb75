"""What every region on Kubernetes has in common: its operations, one way back, one guard, and whose its objects are.

An operation is read, decided, sent as a compare-and-set, and read back. Nothing is kept between operations: what one
needs to know is in the cluster, so that a delivery that died resumes by repeating its operation, from another machine
too. One process at a time carries a region (`cluster.carrier`).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from rollouts.cluster.carrier import RENEW_SECONDS, Carrier, Fence
from rollouts.cluster.model import Place, RegionView
from rollouts.cluster.traffic_verification import Count, requests_arrive
from rollouts.errors import FleetError, NotOurs, Unfit
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import Resource, resource_of
from rollouts.kube.retry import RetryPolicy, deadline, urgent
from rollouts.manifests.conventions import WAY_BACK
from rollouts.manifests.objects.access import Right
from rollouts.manifests.ownership import HINT, foreign_object
from rollouts.model import CarrierHeartbeat, Engine, ForeignObject, RegionState, require_percent
from tidegate.core.clock import Clock
from tidegate.core.model import Json

log = logging.getLogger(__name__)


Seen = TypeVar("Seen", bound=RegionView)

Served = Callable[[Callable[[str], str | None]], Count]
"""Makes what counts the requests of a region, given what series of a version have (`CarriedRegion.series_of`)."""


class CarriedRegion(ABC, Generic[Seen]):
    """A `Fleet` in a cluster, with the Lease of who carries its delivery. A kind says what is read and written."""

    region: str
    _clock: Clock

    def __init__(
        self,
        place: Place,
        cluster: KubeClient,
        clock: Clock,
        *,
        moving: Sequence[tuple[Resource, str]],
        served: Served | None,
        carrier: Carrier | None,
    ) -> None:
        """`moving` are the objects that move users, by kind and name; a guard's note stands on the first.

        Without `served` traffic is not verified; without a `carrier` the region can only be looked at.
        """
        self.series: Mapping[str, str] | None = None
        """By version what its series have in the label that tells versions apart, as the region was seen last; None
        where that is the version."""
        self.region = place.region
        self.mover = moving[0]
        self.fence = Fence(place, cluster, moving, clock, carrier)
        self._cluster, self._clock = cluster, clock
        self._seconds = place.start_seconds + place.retry_seconds
        """The deadline of every operation: engines that start, and a region that is silent."""
        self._retries = RetryPolicy(clock, seconds=place.retry_seconds, within=self._seconds)
        self._served = served(self.series_of) if served else None

    async def observe(self) -> RegionState:
        """What the region is doing."""

        async def observed() -> Seen:
            await self.fence.succeed()
            return await self.look()

        return self._state(await self._retries.run(observed))

    @abstractmethod
    async def deploy(self, engine: Engine) -> RegionState: ...

    async def mirror(self, percent: int) -> RegionState:
        return await self._operate(lambda: self._spread(percent, copies=True))

    async def shift(self, weight: int) -> RegionState:
        return await self._operate(lambda: self._spread(weight, copies=False))

    async def promote(self) -> RegionState:
        return await self._operate(self._promote)

    async def rollback(self, to: str | None) -> RegionState:
        with urgent(), deadline(self._clock, self._seconds):
            if to is None:
                seen = await self._retries.run(self.look)
                # Decided once: a trial that is promoted while this is retried must not become where it goes back to.
                if (to := self._way_back_of(seen)) is None:
                    return self._done(seen)
            version = to
            return await self._operate(lambda: self._go_back(version))

    async def restart(self, version: str) -> RegionState:
        """All users to a version of before that is no longer warm, as the region itself keeps it.

        Raises:
            NotPossible: the region keeps nothing of it.
            EngineDidNotStart: it did not come up; users are where they were.
        """
        return await self._operate(lambda: self._restart(version))

    async def settle(self) -> None:
        """The delivery is over, and what serves stays: from now on there is no way back by itself.

        Raises:
            NotTheCarrier: somebody else has the region by now.
            FleetError: the API server does not answer, or does not let us.
        """
        await self._retries.run(self._settle)

    @abstractmethod
    async def foreign_objects(self) -> tuple[ForeignObject, ...]:
        """Objects of others where this delivery's would be.

        Raises:
            Unfit: what the spec names by reference is not as the spec says.
        """

    @abstractmethod
    async def engine_of(self, version: str) -> Engine | None:
        """The engine of a version that served here before, as the region itself knows it; None when it does not."""

    def series_of(self, version: str) -> str | None:
        """What series of a version have in the label that tells versions apart; None where that is the version."""
        return None if self.series is None else self.series.get(version, "")

    async def carried(self) -> CarrierHeartbeat | None:
        """Who holds the region's Lease; None when nobody does."""
        return await self._retries.run(self.fence.holder)

    async def way_back(self) -> str:
        """The version that served before the delivery that is open here; empty where none is."""
        return await self._retries.run(lambda: self.fence.said(WAY_BACK))

    async def renew(self) -> None:
        """Say in the region that its delivery is carried; nothing where it has not begun."""
        await self.fence.renew()

    async def keep_renewing(self) -> None:
        """Renew the Lease until the task is cancelled. A region that is away is asked again with the next beat."""
        while True:
            await self._clock.sleep(RENEW_SECONDS)
            try:
                await self.renew()
            except FleetError as error:
                log.info("%s: the Lease was not renewed: %s", self.region, error)

    async def leave(self) -> None:
        """End this process' part: the Lease is released. Never raises."""
        await self.fence.leave()

    @property
    @abstractmethod
    def rights(self) -> tuple[Right, ...]:
        """All that looking and a way back need, for a guard."""

    @abstractmethod
    async def look(self) -> Seen:
        """The region as it is now; refused where it is somebody else's by now, who replaced us."""

    @abstractmethod
    def _state(self, seen: Seen) -> RegionState:
        """As an outsider sees it."""

    def _done(self, seen: Seen) -> RegionState:
        """The same after an operation."""
        return self._state(seen)

    @abstractmethod
    async def _set_mirror(self, seen: Seen, percent: int) -> Seen: ...

    @abstractmethod
    async def _set_weight(self, seen: Seen, weight: int) -> Seen: ...

    @abstractmethod
    async def _promote(self) -> Seen: ...

    @abstractmethod
    def _way_back_of(self, seen: Seen) -> str | None:
        """The version that users go back to; None where there is nothing to roll back."""

    @abstractmethod
    async def _abort_at_once(self, to: str) -> None:
        """The users of a trial back to the stable, if that is the version; nothing else."""

    @abstractmethod
    async def _rollback(self, to: str) -> Seen: ...

    @abstractmethod
    async def _restart(self, version: str) -> Seen: ...

    async def _settle(self) -> None:
        await self._entered()
        await self.fence.note(WAY_BACK, "")

    async def _operate(self, operation: Callable[[], Awaitable[Seen]]) -> RegionState:
        return self._done(await self._retries.run(operation))

    async def _entered(self) -> Seen:
        """The region once it is ours to write to; whose it is, is looked at first."""
        if not self.fence.inside:
            refuse_foreign(self.region, *(await self.look()).foreign_objects)
            await self.fence.enter()
        return await self._looked()

    async def _looked(self) -> Seen:
        """The region before an operation; none is allowed where what moves users is somebody else's."""
        seen = await self.look()
        refuse_foreign(self.region, seen.foreign_mover)
        return seen

    async def _spread(self, percent: int, *, copies: bool) -> Seen:
        """That percent of users to the canary, or of `copies`, once requests arrive as the route was set."""
        require_percent(percent)
        seen = await (self._set_mirror if copies else self._set_weight)(await self._entered(), percent)

        async def sends(state: RegionState | None = None) -> bool:
            """Whether the route is as it was set, and requests that it sends to the canary find an engine."""
            state = state or self._state(await self.look())
            share = state.mirror if copies else state.weight
            return share == percent and state.canary is not None and state.canary.ready

        state = self._state(seen)
        if not (self._served and percent and state.stable and state.canary and await sends(state)):
            return seen
        arms, way = (state.stable.version, state.canary.version), (self.region, self._served, self._clock)
        arrive = await requests_arrive(*way, percent=percent, arms=arms, sends=sends, copies=copies)
        return seen if arrive else await self.look()

    async def _go_back(self, to: str) -> Seen:
        if self.fence.insists:
            await self._back_first(to)
        elif not self.fence.inside:
            await self._looked()
            await self.fence.enter()
        return await self._rollback(to)

    async def _back_first(self, to: str) -> None:
        """Anyone who insists on going back sends users back while the Lease is taken, and does not need it for that."""
        said: list[object] = [*await asyncio.gather(self._abort_at_once(to), self.fence.take(), return_exceptions=True)]
        # Marking comes after: it is a write to the very objects that users are moved by, if they are ours.
        if not any(isinstance(failed, NotOurs) for failed in said):
            said += await asyncio.gather(self.fence.enter(), return_exceptions=True)
        for failed in said:
            if isinstance(failed, FleetError):
                # What stands in the way of going back is met again, and said, by what follows.
                log.warning("%s: going back all the same: %s", self.region, failed)
            elif isinstance(failed, BaseException):
                raise failed

    async def _note_way_back(self, served: str, version: str) -> None:
        """What serves now, unless `version` is what a delivery that was left half done goes back to."""
        if served != version and await self.fence.said(WAY_BACK) != version:
            await self.fence.note(WAY_BACK, served)


AnyRegion = CarriedRegion[Any]


async def foreign_objects(cluster: KubeClient, manifests: Sequence[Json], delivery: str) -> tuple[ForeignObject, ...]:
    """Those that stand where one of these objects would be, in their order."""
    found = await live_objects(cluster, manifests)
    return tuple(other for live in found if live and (other := foreign_object(live, delivery)))


async def live_objects(cluster: KubeClient, manifests: Sequence[Json]) -> list[Json | None]:
    """What is there of each of these objects, in their order; None for one that is not."""
    return await asyncio.gather(
        *(
            cluster.find(resource_of(each), each["metadata"]["name"], namespace=each["metadata"].get("namespace"))
            for each in manifests
        )
    )


def refuse_misfits(region: str, found: Iterable[str]) -> None:
    """Raise `Unfit` with everything that does not fit, unless objects of others are as the spec says."""
    if told := "; ".join(found):
        raise Unfit(f"{region}: {told}", hint="nothing was written")


def refuse_foreign(region: str, *found: ForeignObject | None) -> None:
    """Raise `NotOurs` with every one of them and what to do, unless there are none."""
    others = [str(each) for each in found if each]
    if others:
        raise NotOurs(f"{region}: {'; '.join(others)}", hint=HINT)
