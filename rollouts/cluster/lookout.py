"""Looks at a region's objects, and waits until they are as wished.

It asks again every few seconds and does not watch: a look needs nothing from the looks before, so neither a stream
that was cut nor an event that was missed can leave a wish unfulfilled or waiting for what happened already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from rollouts.argo.health import STUCK_AFTER_SECONDS, State
from rollouts.cluster.fence import Fence
from rollouts.cluster.place import Place
from rollouts.cluster.pods import hopeless, problems
from rollouts.cluster.route import RouteKind
from rollouts.cluster.seen import Seen
from rollouts.cluster.state import taken_back
from rollouts.errors import EngineDidNotStart, FleetError, NotConfirmed, NotFound, NotPossible, Overruled
from rollouts.kube.model import Json, Resource
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import PODS, REPLICA_SETS, ROLLOUTS
from rollouts.manifests.conventions import DELIVERY
from tidegate.core.clock import Clock

LOOK_SECONDS = 1.0
"""Between two looks while a wish is on its way."""


class Lookout:
    """The eyes of one region's fleet."""

    def __init__(self, place: Place, cluster: Cluster, routes: RouteKind, clock: Clock, fence: Fence) -> None:
        self._place = place
        self._cluster = cluster
        self._routes = routes
        self._clock = clock
        self._fence = fence

    async def look(self) -> Seen:
        """The region as it is now.

        Raises:
            NotTheCarrier: it is somebody else's by now, who replaced us.
            FleetError: when the API server does not answer, or does not let us see.
        """
        # First: whatever it speaks of is there in what is read after it.
        rollout = await self._get(ROLLOUTS)
        sets, route = await asyncio.gather(
            self._cluster.list(REPLICA_SETS, labels=self._ours), self._get(self._routes.resource)
        )
        # Whatever is written is written onto these two, or decided by them.
        self._fence.allows(rollout)
        self._fence.allows(route)
        seen = Seen(
            at=self._clock.now(),
            routes=self._routes,
            rollout=rollout,
            replica_sets=sets.items,
            route=route,
        )
        if rollout is None or seen.complete:
            return seen
        pods = await self._cluster.list(PODS, labels=self._ours)
        return replace(seen, pods=pods.items)

    async def until(self, holds: Callable[[Seen], bool], what: str, *, within: float, going_back: bool = False) -> Seen:
        """The first look at which it holds; `what` says in an error what was waited for.

        With `going_back` it does not matter what becomes of the trial.

        Raises:
            EngineDidNotStart: engines do not come up, or not in time.
            NotPossible: somebody holds the Rollout, or asks it for another version meanwhile.
            FleetError: the region took its trial back, or its controller does not react.
        """
        begun = self._clock.monotonic()
        first: Seen | None = None
        while True:
            seen = await self.look()
            if holds(seen):
                return seen
            first = first or seen
            waited = self._clock.monotonic() - begun
            # Not sooner: a controller that was away may just have come back.
            if waited >= STUCK_AFTER_SECONDS:
                refuse_stuck(seen)
            if not going_back:
                refuse_overruled(seen, first)
                refuse_hopeless(seen, what)
            if waited >= within:
                raise late(seen, what, within)
            await self._clock.sleep(LOOK_SECONDS)

    async def _get(self, resource: Resource) -> Json | None:
        try:
            return await self._cluster.get(resource, self._place.name)
        except NotFound:
            return None

    @property
    def _ours(self) -> str:
        return f"{DELIVERY}={self._place.name}"


def refuse_stuck(seen: Seen) -> None:
    """End a wait for a controller that does not react.

    Raises:
        NotConfirmed: with the likely cause.
    """
    if seen.health.state is State.STUCK:
        raise NotConfirmed(f"{seen.argo.name} is stuck: {seen.health.message}", hint=seen.health.cause)


def refuse_overruled(seen: Seen, first: Seen) -> None:
    """End a wait for a version that was asked for at the first look, and is not any more.

    Raises:
        Overruled: somebody else asks for another one.
    """
    # Who asked for the same, such as a GitOps controller that is ahead of us, does no harm.
    if seen.foreign_wish and seen.asked[0] != first.asked[0]:
        raise Overruled(seen.foreign_wish.reason)


def refuse_hopeless(seen: Seen, what: str) -> None:
    """End a wait for a trial that time alone cannot end.

    Raises:
        EngineDidNotStart, NotPossible, FleetError: as `Lookout.until`.
    """
    name = seen.argo.name
    if seen.argo.paused_by_spec:
        raise NotPossible(f"somebody holds {name}: {what} cannot come about", hint=f"tidegate rollout promote {name}")
    # An abort stands in the status until the controller sees what was asked for since.
    if seen.observed and (back := taken_back(seen)):
        raise FleetError(back)
    coming = seen.trial or (None if seen.stable else seen.revisions[0] if seen.revisions else None)
    died = hopeless(seen.pods_of(coming))
    if coming and died:
        raise EngineDidNotStart(f"version {coming.version} does not start: {died.splitlines()[-1]}", detail=died)
    if seen.health.state is State.DEGRADED:
        words = f"{seen.health.message}: {seen.health.cause}" if seen.health.cause else seen.health.message
        raise EngineDidNotStart(f"{name} is degraded: {words}", detail=problems(seen.pods) or None)


def late(seen: Seen, what: str, within: float) -> FleetError:
    """What to say when a deadline is over: engines that are missing, or a controller that does not move."""
    missing = problems(seen.pods)
    message = f"{seen.argo.name}: {what} did not come about within {within:.0f} s"
    if missing:
        return EngineDidNotStart(f"{message}: {missing.splitlines()[-1]}", detail=missing)
    said = "; ".join(part for part in (seen.health.message, seen.health.cause) if part)
    return FleetError(f"{message}; it says: {said or seen.health.state}")
