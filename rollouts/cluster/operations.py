"""The operations on a region's objects, one at a time: each written onto what was read, and read back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rollouts.argo import compare_and_set
from rollouts.argo.actions import RolloutClient
from rollouts.argo.compare_and_set import Precondition
from rollouts.argo.model import PausePoint, entry_step, is_resting_at, replica_set_of
from rollouts.argo.templates import original_template, templates_match
from rollouts.argo.waking import Waker
from rollouts.cluster.carrier import Fence
from rollouts.cluster.desired_objects import (
    ApplyTransaction,
    patch_with_warm_limit,
    previous_patch,
    warm_limit,
    warm_limit_patch,
    with_attempt,
    with_warm_limit,
)
from rollouts.cluster.model import RegionConfig, Revision, next_attempt
from rollouts.cluster.observer import RegionObserver
from rollouts.cluster.ownership import refuse_foreign
from rollouts.cluster.reference import RegionNotes, field_patch, places, template_digest, with_fields
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.errors import FleetError, NotConfirmed, NotFound, NotPossible
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import DEPLOYMENTS, ROLLOUTS
from rollouts.kube.retry import Backoff, RetryPolicy, is_transient
from rollouts.manifests.conventions import NOTES
from tidegate.core.clock import Clock
from tidegate.core.model import Json

SETTLE_SECONDS = 120.0
"""For what the API server itself does at once."""

HEAD_START_SECONDS = 0.2
"""Of the abort before our own write: a controller that sees the route change, as Istio's does, and not yet the abort
would write the old weight once more."""

AGAIN_SECONDS, AGAIN = 30.0, Backoff(first_seconds=0.05, most_seconds=16.0)
"""How long the way back is written again, and after which pauses: short ones first, for who was merely faster."""

log = logging.getLogger(__name__)


class RegionOperations:
    """Writes to one region's Rollout and route."""

    def __init__(
        self,
        config: RegionConfig,
        cluster: KubeClient,
        observer: RegionObserver,
        *,
        clock: Clock,
        fence: Fence,
        waker: Waker,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._routes = config.routes
        self._observer = observer
        self._clock = clock
        self._fence = fence
        self._rollouts = RolloutClient(cluster, clock, allows=fence.allows, waker=waker)

    async def deploy(
        self, manifests: Sequence[Json], version: str, snapshot: RegionSnapshot, transaction: ApplyTransaction
    ) -> None:
        """Apply everything that a version needs, the Rollout last: then nothing is missing when its pods start."""
        *others, rollout = manifests
        await transaction.apply(others)
        rollout = with_attempt(rollout, next_attempt(version, snapshot.revisions))
        rollout = with_warm_limit(rollout, warm_limit(self._config, snapshot, leaving=snapshot.argo.aborted))
        # What is new here has no number yet. Not in what is applied: an apply that leaves it out would take it away.
        await self._fence.mark(self._routes.resource)
        await transaction.apply_rollout(rollout, snapshot.rollout)
        if snapshot.rollout is None:
            await self._fence.mark(ROLLOUTS)
        transaction.commit()

    async def set_mirror(self, snapshot: RegionSnapshot, percent: int) -> RegionSnapshot:
        """Our own filter on the route."""
        if snapshot.mirror == percent:
            return snapshot
        if snapshot.route is None:
            raise NotPossible(
                f"{self._routes.resource.kind} {self._config.route} is gone: nothing can be mirrored",
                hint="apply it again: the set-up part of `tidegate rollout render`",
            )
        refuse_foreign(self._config.region, *snapshot.foreign_objects)
        await self._cluster.replace(self._routes.resource, self._routes.mirrored(snapshot.route, percent))
        return await self._observer.until(
            lambda now: now.mirror == percent, f"a mirror of {percent} %", within=SETTLE_SECONDS
        )

    async def move_to(self, snapshot: RegionSnapshot, point: PausePoint) -> RegionSnapshot:
        """The Rollout rests at that pause, and the route has its weight; or the canary has no engine to get there."""
        await self._rollouts.to_step(self._config.rollout, entry_step(snapshot.argo, point), _same(snapshot))

        def rests(now: RegionSnapshot) -> bool:
            return now.is_canary_down or (
                now.observed and is_resting_at(now.argo, point) and now.weight == point.weight
            )

        return await self._observer.until(rests, f"a weight of {point.weight} %", within=self._config.start_seconds)

    async def promote_full(self, snapshot: RegionSnapshot) -> None:
        """Past all steps that are left."""
        await self._rollouts.promote_full(self._config.rollout, _same(snapshot))

    async def abort(self, snapshot: RegionSnapshot) -> None:
        """All users on the stable and no more copies: by the controller, and by ourselves `HEAD_START_SECONDS` later.

        Neither waits for the other's success. A controller that lives writes the same weight; were it just about to
        write the old one, the abort comes next in its queue, and it says that it aborted only after it wrote the new
        one (`rolloutCanary`: traffic before status).

        Raises:
            NotConfirmed: the controller did not react; users are where the route sends them now.
            FleetError: the abort could not be sent.
        """
        aborted, routed = await asyncio.gather(
            self._rollouts.abort(self._config.rollout, _same(snapshot)),
            self._send_back(snapshot),
            return_exceptions=True,
        )
        for failed in (aborted, routed):
            if isinstance(failed, BaseException) and not isinstance(failed, FleetError):
                raise failed
        if not isinstance(aborted, BaseException):
            return
        log.warning("%s: the abort: %s", self._config.region, aborted)
        # One that died on the way may have written the old weight after us.
        await self._send_back(snapshot)
        raise aborted

    async def _send_back(self, snapshot: RegionSnapshot) -> None:
        """Write the way back into the route, at once and again until it is taken.

        Raises:
            FleetError: the route is not ours to write, or nobody answers.
        """
        kind, route = self._routes, snapshot.route
        await self._clock.sleep(HEAD_START_SECONDS)
        attempts = RetryPolicy(self._clock, seconds=AGAIN_SECONDS, backoff=AGAIN).attempts()
        while (route := await self._route_now(route)) is not None:
            if other := self._config.foreign(route):
                log.warning("%s: %s: the way back is left to its controller", self._config.region, other)
                return
            # Never up: the one who is on the stable already stays there.
            weight = min(snapshot.weight_that_stays, kind.weight(route))
            changed = kind.mirrored(kind.weighted(route, weight), 0)
            if changed == route:
                return
            try:
                await self._cluster.replace(kind.resource, changed)
            except FleetError as error:
                if not is_transient(error):
                    raise
                log.warning("%s: the way back is written again: %s", self._config.region, error)
                if not await attempts.pause():
                    what = f"{kind.resource.kind} {self._config.route}"
                    where = f"{what} could not be written: users stay where it sends them"
                    raise NotConfirmed(where) from error
            else:
                return

    async def resume(self) -> None:
        """Somebody held the Rollout by hand."""
        await self._rollouts.resume(self._config.rollout)

    async def undo(self, snapshot: RegionSnapshot, wanted: Revision) -> None:
        """Ask for that revision's template again; nothing when it is asked for."""
        assert snapshot.rollout is not None, "there is a revision of a Rollout that is not there"
        if self._config.theirs:
            replica_set = replica_set_of(snapshot.rollout, snapshot.replica_sets, wanted.number)
            await self.ask(snapshot, original_template(replica_set))
            return
        limit = warm_limit(self._config, snapshot, leaving=True)
        for request in compare_and_set.undo(snapshot.rollout, snapshot.replica_sets, wanted.number):
            await self._cluster.send(patch_with_warm_limit(request, limit))

    async def ask(self, snapshot: RegionSnapshot, template: Json) -> None:
        """Ask a Rollout of others for that pod template: by the fields that say its version, where that is all.

        Raises:
            NotPossible: the template that is there has not all of them.
            FleetError: it was changed meanwhile, or nobody answers.
        """
        theirs, rollout = self._config.theirs, snapshot.rollout
        assert theirs is not None and rollout is not None, "there is no Rollout of others"
        now = rollout["spec"].get("template") or {}
        fields = {place.name: place.value for place in places(template, theirs)}
        wanted, operations = with_fields(now, theirs, fields), field_patch(now, theirs, fields)
        if not templates_match(wanted, template):
            wanted, operations = template, [{"op": "replace", "path": "/spec/template", "value": template}]
        # First: who reads it then knows whose the change is.
        await self.note(snapshot.notes.model_copy(update={"template": template_digest(wanted)}))
        resource, written = (DEPLOYMENTS, snapshot.workload) if snapshot.workload else (ROLLOUTS, rollout)
        for request in compare_and_set.change(resource, written, operations):
            await self._cluster.send(request)

    async def note(self, notes: RegionNotes) -> None:
        """Remember it on the Lease."""
        await self._fence.note(NOTES, notes.model_dump_json(exclude_defaults=True))

    async def note_previous(self, snapshot: RegionSnapshot, version: str | None) -> None:
        """Note the way back on the Rollout; None forgets it."""
        assert snapshot.rollout is not None, "there is a way back of a Rollout that is not there"
        if self._config.theirs:
            await self.note(snapshot.notes.model_copy(update={"previous": version or ""}))
            return
        limit = warm_limit_patch(snapshot.rollout, warm_limit(self._config, snapshot, leaving=False))
        if limit or snapshot.remembered != (version or ""):
            await self._cluster.patch(ROLLOUTS, self._config.name, previous_patch(snapshot, version) | limit)

    async def wait_until_stable(self, version: str, *, going_back: bool = False) -> RegionSnapshot:
        """Once that version serves everybody."""

        def serves(now: RegionSnapshot) -> bool:
            return now.is_settled and now.stable is not None and now.stable.version == version

        what = f"all users on version {version}"
        return await self._observer.until(serves, what, within=self._config.start_seconds, going_back=going_back)

    async def _route_now(self, before: Json | None) -> Json | None:
        """As it is, or as it was where nobody tells: an old one is not taken."""
        try:
            route = await self._cluster.get(self._routes.resource, self._config.route)
        except NotFound:
            return None
        except FleetError:
            return before
        self._fence.allows(route)
        return route


def _same(snapshot: RegionSnapshot) -> Precondition:
    """The version that was looked at, at whatever step by now."""
    return Precondition(pod_hash=snapshot.argo.pod_hash)
