"""What is done to a region's objects: one move at a time, each onto what was looked at, each read back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rollouts.argo import safe
from rollouts.argo.actions import Rollouts
from rollouts.argo.safe import Expected
from rollouts.cluster.applying import Applying
from rollouts.cluster.claims import refuse
from rollouts.cluster.fence import Fence
from rollouts.cluster.holds import Hold, entry_of, rests_at
from rollouts.cluster.lookout import Lookout
from rollouts.cluster.patience import passes
from rollouts.cluster.place import Place
from rollouts.cluster.revisions import Revision, next_attempt
from rollouts.cluster.route import RouteKind
from rollouts.cluster.seen import Seen
from rollouts.cluster.wanted import numbered, remembering
from rollouts.cluster.warmth import as_patch, limit_of, limited, with_limit
from rollouts.errors import FleetError, NotConfirmed, NotFound, NotPossible
from rollouts.kube.model import Json
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import ROLLOUTS
from rollouts.manifests.belonging import stranger
from tidegate.core.clock import Clock

SETTLE_SECONDS = 120.0
"""For what the API server itself does at once."""

HEAD_START_SECONDS = 0.2
"""Of the abort before our own write: a controller that sees the route change, as Istio's does, and not yet the abort
would write the old weight once more."""

AGAIN_SECONDS = (0.0, 0.0, 0.0, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses between attempts to send users back: none where somebody was merely faster, at first."""

log = logging.getLogger(__name__)


class Moves:
    """The hands of one region's fleet."""

    def __init__(
        self, place: Place, cluster: Cluster, routes: RouteKind, lookout: Lookout, *, clock: Clock, fence: Fence
    ) -> None:
        self._place = place
        self._cluster = cluster
        self._routes = routes
        self._lookout = lookout
        self._clock = clock
        self._fence = fence
        self._rollouts = Rollouts(cluster, clock, allows=fence.allows)

    async def ask_for(self, manifests: Sequence[Json], version: str, seen: Seen, applying: Applying) -> None:
        """Apply everything that a version needs, the Rollout last: then nothing is missing when its pods start."""
        *others, rollout = manifests
        await applying.apply(others)
        rollout = numbered(rollout, next_attempt(version, seen.revisions))
        rollout = with_limit(rollout, limit_of(self._place, seen, leaving=seen.argo.aborted))
        # What is new here has no number yet. Not in what is applied: an apply that leaves it out would take it away.
        await self._fence.mark(self._routes.resource)
        await applying.apply_rollout(rollout, seen.rollout)
        if seen.rollout is None:
            await self._fence.mark(ROLLOUTS)
        applying.complete()

    async def copy(self, seen: Seen, percent: int) -> Seen:
        """Our own filter on the route."""
        if seen.mirror == percent:
            return seen
        if seen.route is None:
            raise NotPossible(f"{self._routes.resource.kind} {self._place.name} is gone: nothing can be mirrored")
        refuse(self._place.region, *seen.strangers)
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
        """All users on the stable and no more copies: by the controller, and by ourselves `HEAD_START_SECONDS` later.

        Neither waits for the other's success. A controller that lives writes the same weight; were it just about to
        write the old one, the abort comes next in its queue, and it says that it aborted only after it wrote the new
        one (`rolloutCanary`: traffic before status).

        Raises:
            NotConfirmed: the controller did not react; users are where the route sends them now.
            FleetError: the abort could not be sent.
        """
        aborted, routed = await asyncio.gather(
            self._rollouts.abort(self._place.name, _same(seen)), self._send_back(seen), return_exceptions=True
        )
        for failed in (aborted, routed):
            if isinstance(failed, BaseException) and not isinstance(failed, FleetError):
                raise failed
        if not isinstance(aborted, BaseException):
            return
        log.warning("%s: the abort: %s", self._place.region, aborted)
        # One that died on the way may have written the old weight after us.
        await self._send_back(seen)
        raise aborted

    async def _send_back(self, seen: Seen) -> None:
        """Write the way back into the route, at once and again until it is taken.

        Raises:
            FleetError: the route is not ours to write, or nobody answers.
        """
        kind, name, route = self._routes, self._place.name, seen.route
        for pause in (HEAD_START_SECONDS, *AGAIN_SECONDS):
            await self._clock.sleep(pause)
            route = await self._route_now(route)
            if route is None:
                return
            if other := stranger(route, self._place.name):
                log.warning("%s: %s: the way back is left to its controller", self._place.region, other)
                return
            # Never up: whoever is on the stable already stays there.
            weight = min(seen.weight_that_stays, kind.weight(route, name))
            changed = kind.mirrored(kind.weighted(route, name, weight), name, 0)
            if changed == route:
                return
            try:
                await self._cluster.replace(kind.resource, changed)
            except FleetError as error:
                if not passes(error):
                    raise
                log.warning("%s: the way back is written again: %s", self._place.region, error)
            else:
                return
        raise NotConfirmed(f"{kind.resource.kind} {name} could not be written: users stay where it sends them")

    async def let_go(self) -> None:
        """Somebody held the Rollout by hand."""
        await self._rollouts.resume(self._place.name)

    async def undo(self, seen: Seen, wanted: Revision) -> None:
        """Ask for that revision's template again; nothing when it is asked for."""
        assert seen.rollout is not None, "there is a revision of a Rollout that is not there"
        limit = limit_of(self._place, seen, leaving=True)
        for request in safe.undo(seen.rollout, seen.replica_sets, wanted.number):
            await self._cluster.send(limited(request, seen.rollout, limit))

    async def remember(self, seen: Seen, version: str | None) -> None:
        """Note the way back on the Rollout; None forgets it."""
        assert seen.rollout is not None, "there is a way back of a Rollout that is not there"
        limit = as_patch(seen.rollout, limit_of(self._place, seen, leaving=False))
        if limit or seen.remembered != (version or ""):
            await self._cluster.patch(ROLLOUTS, self._place.name, remembering(seen, version) | limit)

    async def settled(self, version: str, *, going_back: bool = False) -> Seen:
        """Once that version serves everybody."""

        def serves(now: Seen) -> bool:
            return now.settled and now.stable is not None and now.stable.version == version

        what = f"all users on version {version}"
        return await self._lookout.until(serves, what, within=self._place.start_seconds, going_back=going_back)

    async def _route_now(self, before: Json | None) -> Json | None:
        """As it is, or as it was where nobody tells: an old one is not taken."""
        try:
            route = await self._cluster.get(self._routes.resource, self._place.name)
        except NotFound:
            return None
        except FleetError:
            return before
        self._fence.allows(route)
        return route


def _same(seen: Seen) -> Expected:
    """The version that was looked at, at whatever step by now."""
    return Expected(pod_hash=seen.argo.pod_hash)
