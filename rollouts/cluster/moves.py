"""What is done to a region's objects: one move at a time, each onto what was looked at, each read back."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rollouts.argo import safe
from rollouts.argo.actions import Rollouts
from rollouts.argo.safe import Expected
from rollouts.cluster.holds import Hold, entry_of, rests_at
from rollouts.cluster.lookout import Lookout
from rollouts.cluster.place import Place
from rollouts.cluster.revisions import Revision, next_attempt
from rollouts.cluster.route import RouteKind
from rollouts.cluster.seen import Seen
from rollouts.cluster.wanted import numbered, remembering, said_again, succeeding
from rollouts.errors import NotConfirmed, NotFound, NotPossible
from rollouts.kube.model import Json
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import ROLLOUTS, resource_of
from tidegate.core.clock import Clock

SETTLE_SECONDS = 120.0
"""For what the API server itself does at once."""

log = logging.getLogger(__name__)


class Moves:
    """The hands of one region's fleet."""

    def __init__(self, place: Place, cluster: Cluster, routes: RouteKind, lookout: Lookout, clock: Clock) -> None:
        self._place = place
        self._cluster = cluster
        self._routes = routes
        self._lookout = lookout
        self._rollouts = Rollouts(cluster, clock)

    async def ask_for(self, manifests: Sequence[Json], version: str, seen: Seen) -> None:
        """Apply everything that a version needs, the Rollout last: then nothing is missing when its pods start."""
        *others, rollout = manifests
        for manifest in others:
            await self._cluster.apply(said_again(manifest, await self._live(manifest)), force=True)
        rollout = numbered(rollout, next_attempt(version, seen.revisions))
        if seen.rollout is None:
            await self._cluster.apply(rollout, force=True)
        else:
            await self._cluster.replace(ROLLOUTS, succeeding(rollout, seen.rollout))

    async def copy(self, seen: Seen, percent: int) -> Seen:
        """Our own filter on the route."""
        if seen.mirror == percent:
            return seen
        if seen.route is None:
            raise NotPossible(f"{self._routes.resource.kind} {self._place.name} is gone: nothing can be mirrored")
        await self._cluster.replace(self._routes.resource, self._routes.mirrored(seen.route, self._place.name, percent))
        return await self._lookout.until(
            lambda now: now.mirror == percent, f"a mirror of {percent} %", within=SETTLE_SECONDS
        )

    async def hold_at(self, seen: Seen, hold: Hold) -> Seen:
        """The Rollout rests at that pause, and the route has its weight."""
        await self._rollouts.to_step(self._place.name, entry_of(seen.argo, hold), _same(seen))

        def rests(now: Seen) -> bool:
            return now.observed and rests_at(now.argo, hold) and now.weight == hold.weight

        return await self._lookout.until(rests, f"a weight of {hold.weight} %", within=self._place.start_seconds)

    async def promote_full(self, seen: Seen) -> None:
        """Past all steps that are left."""
        await self._rollouts.promote_full(self._place.name, _same(seen))

    async def abort(self, seen: Seen) -> None:
        """All users on the stable, by the controller; by ourselves when it does not react."""
        try:
            await self._rollouts.abort(self._place.name, _same(seen))
        except NotConfirmed as error:
            log.warning("%s: %s; the route is set to the stable without the controller", self._place.region, error)
            route = (await self._lookout.look()).route
            if route is not None:
                await self._cluster.replace(self._routes.resource, self._routes.without_canary(route, self._place.name))

    async def let_go(self) -> None:
        """Somebody held the Rollout by hand."""
        await self._rollouts.resume(self._place.name)

    async def undo(self, seen: Seen, wanted: Revision) -> None:
        """Ask for that revision's template again; nothing when it is asked for."""
        assert seen.rollout is not None, "there is a revision of a Rollout that is not there"
        for request in safe.undo(seen.rollout, seen.replica_sets, wanted.number):
            await self._cluster.send(request)

    async def remember(self, seen: Seen, version: str | None) -> None:
        """Note the way back on the Rollout; None forgets it."""
        if seen.remembered != (version or ""):
            await self._cluster.patch(ROLLOUTS, self._place.name, remembering(seen, version))

    async def settled(self, version: str, *, going_back: bool = False) -> Seen:
        """Once that version serves everybody."""

        def serves(now: Seen) -> bool:
            return now.settled and now.stable is not None and now.stable.version == version

        what = f"all users on version {version}"
        return await self._lookout.until(serves, what, within=self._place.start_seconds, going_back=going_back)

    async def _live(self, manifest: Json) -> Json | None:
        try:
            return await self._cluster.get(resource_of(manifest), manifest["metadata"]["name"])
        except NotFound:
            return None


def _same(seen: Seen) -> Expected:
    """The version that was looked at, at whatever step by now."""
    return Expected(pod_hash=seen.argo.pod_hash)
