"""A region of a Rollout: how it is read, and each write to its Rollout and route, onto what was read, and read back.

It polls every second while an operation is in progress, and does not watch: a snapshot needs nothing from those before,
so neither a stream that was cut nor an event that was missed can leave an operation waiting for what happened already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rollouts.argo import actions
from rollouts.argo.actions import RolloutClient, Waker
from rollouts.argo.model import PausePoint, entry_step, is_resting_at
from rollouts.argo.state import STUCK_AFTER_SECONDS, pending_reaction
from rollouts.cluster.carrier import Carrier
from rollouts.cluster.desired_objects import LIMIT, warm_limit
from rollouts.cluster.model import RegionConfig, Revision
from rollouts.cluster.reference import RegionNotes, with_workload
from rollouts.cluster.region import CarriedRegion, refuse_foreign
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.cluster.state import refuse_hopeless, refuse_overruled, refuse_stuck, require_canary, timeout_error
from rollouts.cluster.traffic_verification import RequestCounter
from rollouts.errors import FleetError, NotConfirmed, NotFound, NotPossible
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, ROLLOUTS
from rollouts.kube.retry import Backoff, RetryPolicy, is_transient, time_left
from rollouts.manifests.conventions import PREVIOUS
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

POLL_SECONDS = 1.0
"""Between two snapshots while an operation is in progress."""

SETTLE_SECONDS = 120.0
"""For what the API server itself does at once."""

HEAD_START_SECONDS = 0.2
"""Of the abort before our own write: a controller that sees the route change, as Istio's does, and not yet the abort
would write the old weight once more."""

AGAIN_SECONDS, AGAIN = 30.0, Backoff(first_seconds=0.05, most_seconds=16.0)
"""How long the way back is written again, and after which pauses: short ones first, for who was merely faster."""

log = logging.getLogger(__name__)


class RegionOperations(CarriedRegion[RegionSnapshot]):
    """Reads and writes one region of a Rollout; what for is decided above (`cluster.fleet`)."""

    def __init__(
        self,
        config: RegionConfig,
        *,
        cluster: KubeClient,
        clock: Clock,
        served: RequestCounter | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        workload = ((DEPLOYMENTS, config.workload),) if config.workload else ()
        moving = ((ROLLOUTS, config.rollout), *workload, (config.routes.resource, config.route))
        super().__init__(config, cluster, clock, moving=moving, served=served, carrier=carrier)
        self._config = config
        self._routes = config.routes
        self._waker = Waker(cluster, clock, allows=self._fence.allows)
        self._rollout = RolloutClient(config.rollout, cluster, clock, allows=self._fence.allows, waker=self._waker)

    async def _look(self) -> RegionSnapshot:
        # First: whatever it speaks of is there in what is read after it.
        rollout = await self._cluster.find(ROLLOUTS, self._config.rollout)
        workload = await self._cluster.find(DEPLOYMENTS, name) if (name := self._config.workload) else None
        rollout = with_workload(rollout, workload) if rollout else None
        ours = self._selector(rollout)
        sets, route, notes = await asyncio.gather(
            self._cluster.list(REPLICA_SETS, labels=ours),
            self._cluster.find(self._routes.resource, self._config.route),
            self._noted(),
        )
        # Whatever is written is written onto these, or decided by them.
        for each in (rollout, workload, route):
            self._fence.allows(each)
        snapshot = RegionSnapshot(
            at=self._clock.now(),
            config=self._config,
            rollout=rollout,
            workload=workload,
            replica_sets=sets.items,
            route=route,
            notes=notes,
        )
        if rollout is None or snapshot.is_whole:
            return snapshot
        pods = await self._cluster.list(PODS, labels=ours)
        return replace(snapshot, pods=pods.items)

    def _selector(self, _: Json | None) -> str:
        """By which the pods of all versions are selected, and their ReplicaSets."""
        return f"{DELIVERY}={self._config.name}"

    async def _noted(self) -> RegionNotes:
        """What is remembered of a Rollout of others."""
        return RegionNotes()

    async def _until(
        self,
        holds: Callable[[RegionSnapshot], bool],
        what: str,
        *,
        within: float | None = None,
        going_back: bool = False,
    ) -> RegionSnapshot:
        """The first snapshot for which `holds` is true; `what` says in an error what was waited for.

        With `going_back` the fate of the trial does not matter. `within` is as long as engines may take to start,
        unless it says otherwise.

        Raises:
            EngineDidNotStart: engines do not come up, or not in time.
            NotPossible: somebody holds the Rollout, or asks it for another version meanwhile.
            FleetError: the region took its trial back, or its controller does not react.
        """
        begun = self._clock.monotonic()
        first: RegionSnapshot | None = None
        while True:
            snapshot = await self._look()
            if holds(snapshot):
                return snapshot
            first = first or snapshot
            waited = self._clock.monotonic() - begun
            # Not sooner: a controller that was away may just have come back.
            if waited >= STUCK_AFTER_SECONDS:
                refuse_stuck(snapshot)
            if not going_back:
                refuse_overruled(snapshot, first)
                refuse_hopeless(snapshot, what)
            if waited >= (within or self._config.start_seconds) or time_left() <= 0:
                raise timeout_error(snapshot, what, waited)
            if snapshot.rollout and pending_reaction(snapshot.rollout):
                await self._waker.look(snapshot.rollout)
            await self._clock.sleep(POLL_SECONDS)

    async def _until_up(self, version: str) -> RegionSnapshot:
        """Once that version serves, or is ready to get users."""

        def up(now: RegionSnapshot) -> bool:
            if now.stable and now.stable.version == version:
                return now.stable.is_complete
            return now.is_ready_for_users and now.trial is not None and now.trial.version == version

        return await self._until(up, f"version {version}")

    async def _until_stable(self, version: str, *, going_back: bool = False) -> RegionSnapshot:
        """Once that version serves everybody."""

        def serves(now: RegionSnapshot) -> bool:
            return now.is_settled and now.stable is not None and now.stable.version == version

        return await self._until(serves, f"all users on version {version}", going_back=going_back)

    async def _set_mirror(self, seen: RegionSnapshot, percent: int) -> RegionSnapshot:
        """Our own filter on the route."""
        if percent:
            require_canary(seen, f"mirror {percent} % of requests to")
        if seen.mirror == percent:
            return seen
        if seen.route is None:
            raise NotPossible(
                f"{self._routes.resource.kind} {self._config.route} is gone: nothing can be mirrored",
                hint="apply it again: the set-up part of `tidegate rollout render`",
            )
        refuse_foreign(self.region, *seen.foreign_objects)
        await self._cluster.replace(self._routes.resource, self._routes.mirrored(seen.route, percent))
        return await self._until(lambda now: now.mirror == percent, f"a mirror of {percent} %", within=SETTLE_SECONDS)

    async def _move_to(self, snapshot: RegionSnapshot, point: PausePoint) -> RegionSnapshot:
        """The Rollout rests at that pause, and the route has its weight; or the canary has no engine to get there."""
        await self._rollout.to_step(entry_step(snapshot.argo, point), snapshot.argo.pod_hash)

        def rests(now: RegionSnapshot) -> bool:
            return now.is_canary_down or (
                now.observed and is_resting_at(now.argo, point) and now.weight == point.weight
            )

        return await self._until(rests, f"a weight of {point.weight} %")

    async def _abort(self, snapshot: RegionSnapshot) -> None:
        """All users on the stable and no more copies: by the controller, and by ourselves `HEAD_START_SECONDS` later.

        Neither waits for the other's success. A controller that lives writes the same weight; were it just about to
        write the old one, the abort comes next in its queue, and it says that it aborted only after it wrote the new
        one (`rolloutCanary`: traffic before status).

        Raises:
            NotConfirmed: the controller did not react; users are where the route sends them now.
            FleetError: the abort could not be sent.
        """
        aborted, routed = await asyncio.gather(
            self._rollout.abort(snapshot.argo.pod_hash), self._send_back(snapshot), return_exceptions=True
        )
        for failed in (aborted, routed):
            if isinstance(failed, BaseException) and not isinstance(failed, FleetError):
                raise failed
        if not isinstance(aborted, BaseException):
            return
        log.warning("%s: the abort: %s", self.region, aborted)
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
                log.warning("%s: %s: the way back is left to its controller", self.region, other)
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
                log.warning("%s: the way back is written again: %s", self.region, error)
                if not await attempts.pause():
                    what = f"{kind.resource.kind} {self._config.route}"
                    where = f"{what} could not be written: users stay where it sends them"
                    raise NotConfirmed(where) from error
            else:
                return

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

    async def _undo(self, snapshot: RegionSnapshot, wanted: Revision) -> None:
        """Ask for that revision's template again; nothing when it is asked for."""
        assert snapshot.rollout is not None, "there is a revision of a Rollout that is not there"
        operations = actions.undo(snapshot.rollout, snapshot.replica_sets, wanted.number)
        limit = warm_limit(self._config, snapshot, leaving=True)
        if operations and limit is not None:
            operations.append({"op": "add", "path": f"/spec/strategy/canary/{LIMIT}", "value": limit})
        for request in actions.change(ROLLOUTS, snapshot.rollout, operations):
            await self._cluster.send(request)

    async def _note_previous(self, snapshot: RegionSnapshot, version: str | None) -> None:
        """Note the way back; None forgets it."""
        assert snapshot.rollout is not None, "there is a way back of a Rollout that is not there"
        limit, patch = warm_limit(self._config, snapshot, leaving=False), dict[str, Any]()
        if limit not in {None, snapshot.rollout["spec"]["strategy"]["canary"].get(LIMIT)}:
            patch["spec"] = {"strategy": {"canary": {LIMIT: limit}}}
        if patch or snapshot.remembered != (version or ""):
            resource_version = snapshot.argo.resource_version
            patch["metadata"] = {"resourceVersion": resource_version, "annotations": {PREVIOUS: version}}
            await self._cluster.patch(ROLLOUTS, self._config.name, patch)
