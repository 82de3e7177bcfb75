"""A region of LeaderWorkerSets as its guard sees it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime

from rollouts.argo.model import parse_time
from rollouts.cluster.carrier import Carrier, Fence, carrier_number
from rollouts.cluster.guard import GuardedTrial
from rollouts.cluster.model import RegionConfig, guard_note_patch
from rollouts.cluster.routes import RouteKind
from rollouts.errors import FleetError, NotFound
from rollouts.kube.objects import owns_field
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import LEADER_WORKER_SETS, SERVICES
from rollouts.manifests.conventions import stable_service
from rollouts.manifests.objects.access import guard_rights
from rollouts.model import GuardRollback
from rollouts.multinode.fleet import LeaderWorkerSetFleet
from rollouts.multinode.observer import GroupsObserver, moving_users
from rollouts.multinode.snapshot import GroupsSnapshot
from tidegate.core.clock import Clock

log = logging.getLogger(__name__)


class GuardedGroups:
    """A `GuardedRegion`."""

    def __init__(self, config: RegionConfig, cluster: Cluster, routes: RouteKind, clock: Clock) -> None:
        self.rights = guard_rights(config.name, routes.resource, config.route, multi_node=True)
        self._config = config
        self._cluster = cluster
        self._routes = routes
        self._clock = clock
        fence = Fence(config, cluster, moving_users(config, routes), clock, None)
        self._observer = GroupsObserver(config, cluster, routes, clock, fence)

    async def look(self) -> GuardedTrial:
        snapshot = await self._observer.observe()
        split, trial = snapshot.placement.split, _trial(snapshot)
        marked = (snapshot.stable_service, snapshot.canary_service, snapshot.route)
        return GuardedTrial(
            asked=(trial, split.stable or "", split.mirror),
            step=split.weight,
            written=max(_written(snapshot), default=None),
            stable=split.stable,
            trial=trial,
            going_on=split.stable is not None and not snapshot.is_at_rest and not snapshot.foreign_objects,
            carrier=max(map(carrier_number, marked)),
            unattended=snapshot.unattended,
            subject={**(snapshot.stable_service or {}), "apiVersion": SERVICES.api_version, "kind": SERVICES.kind},
        )

    async def note(self, taken: GuardRollback) -> None:
        await self._cluster.patch(SERVICES, stable_service(self._config.name), guard_note_patch(taken))

    async def reconcile(self) -> None:
        """Take users from a canary that died, and away the version that was kept warm for long enough."""
        try:
            snapshot = await self._observer.observe()
            await self.fleet(None).relieve()
            await self._retire(snapshot)
        except FleetError as error:
            log.info("%s: %s", self._config.region, error)

    def fleet(self, carrier: Carrier | None) -> LeaderWorkerSetFleet:
        return LeaderWorkerSetFleet(
            self._config,
            cluster=self._cluster,
            routes=self._routes,
            render=lambda _: (),
            clock=self._clock,
            carrier=carrier,
        )

    async def _retire(self, snapshot: GroupsSnapshot) -> None:
        until, previous = snapshot.previous_until, snapshot.placement.split.previous
        if previous is None or until is None or snapshot.at < until or not snapshot.is_at_rest:
            return
        for each in snapshot.without_role(previous):
            try:
                await self._cluster.delete(LEADER_WORKER_SETS, each.name)
            except NotFound:
                continue
            log.info("%s: version %s was kept warm for long enough", self._config.region, previous)


def _trial(snapshot: GroupsSnapshot) -> str:
    """The version on trial, or the one that comes up."""
    return snapshot.placement.split.canary or next((each.version for each in snapshot.without_any_role), "")


def _written(snapshot: GroupsSnapshot) -> Iterator[datetime]:
    """When somebody last moved users."""
    for found in (snapshot.stable_service, snapshot.canary_service, snapshot.route):
        for each in ((found or {}).get("metadata") or {}).get("managedFields") or []:
            if owns_field(each, ("f:spec",)) and (at := parse_time(each.get("time"))):
                yield at
