"""A region as its guard sees it: of a Rollout, or of two backends of a route."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from rollouts.argo.model import parse_time
from rollouts.cluster.carried import CarriedRegion
from rollouts.cluster.carrier import Carrier, Fence, carrier_number
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.model import RegionConfig, guard_note, guard_note_patch
from rollouts.cluster.observer import RegionObserver, moving_users
from rollouts.cluster.peers import RoutePlace
from rollouts.cluster.reference import template_writers
from rollouts.cluster.referenced import ReferencedFleet
from rollouts.cluster.route import RouteFleet
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import HTTP_ROUTES, ROLLOUTS
from rollouts.manifests.objects.access import Right, guard_rights, route_rights
from rollouts.model import GuardRollback
from tidegate.core.clock import Clock
from tidegate.core.model import Json, Value


class GuardedTrial(Value):
    """What a guard has to know of a region at one moment."""

    asked: tuple[str, str, int]
    step: int
    written: datetime | None
    """All three as `guard.SignsOfLife` has them."""
    stable: str | None
    """The version that users go back to."""
    trial: str
    """The version that is on trial, or asked for."""
    going_on: bool
    """Whether there is a trial of tidegate's to take back; one that somebody else asked for is theirs."""
    carrier: int
    """The highest number of a carrier on its objects."""
    unattended: GuardRollback | None
    """What a guard has noted there."""
    subject: Json
    """The object that an Event is about."""


class GuardedRegion(Protocol):
    """A region of one kind."""

    rights: tuple[Right, ...]
    """All that looking and a way back need."""

    async def look(self) -> GuardedTrial:
        """What is there."""
        ...

    async def note(self, taken: GuardRollback) -> None:
        """Say in the region what is about to be taken back."""
        ...

    def fleet(self, carrier: Carrier) -> CarriedRegion:
        """What takes users back."""
        ...


class GuardedRoute:
    """Two backends of a route."""

    def __init__(self, place: RoutePlace, cluster: KubeClient, clock: Clock) -> None:
        self.rights = route_rights(place.name, place.reference)
        self._place, self._cluster, self._clock = place, cluster, clock
        self._reader = RouteFleet(place, cluster=cluster, clock=clock)

    async def look(self) -> GuardedTrial:
        snapshot, workloads = await self._reader.snapshot(), await self._reader.workloads()
        split, state = snapshot.split, guard_note(snapshot.route)
        version, digest = snapshot.version(snapshot.other)
        untouched = snapshot.route is not None and not self._place.foreign(snapshot.route)
        return GuardedTrial(
            asked=(version, digest, 1),
            step=snapshot.weight,
            written=None,
            stable=split.stable,
            trial=version,
            going_on=split.canary is not None and untouched,
            carrier=max(map(carrier_number, (snapshot.route, *workloads))),
            unattended=state,
            subject={**(snapshot.route or {}), "apiVersion": HTTP_ROUTES.api_version, "kind": HTTP_ROUTES.kind},
        )

    async def note(self, taken: GuardRollback) -> None:
        await self._cluster.patch(HTTP_ROUTES, self._place.reference.route, guard_note_patch(taken))

    def fleet(self, carrier: Carrier) -> RouteFleet:
        return RouteFleet(self._place, cluster=self._cluster, clock=self._clock, carrier=carrier)


class GuardedRollout:
    """The Rollout, its route, and the fleet that takes users back."""

    def __init__(self, config: RegionConfig, cluster: KubeClient, clock: Clock) -> None:
        pools = config.theirs.services if config.theirs else ()
        route = config.routes.resource
        self.rights = guard_rights(config.name, config.rollout, route, config.route, config.workload, pools=pools)
        self._config = config
        self._cluster = cluster
        self._clock = clock
        fence = Fence(config, cluster, moving_users(config), clock, None)
        self._observer = RegionObserver(config, cluster, clock, fence)

    async def look(self) -> GuardedTrial:
        snapshot = await self._observer.observe()
        return GuardedTrial(
            asked=snapshot.asked,
            step=snapshot.argo.step_index,
            written=_written(snapshot.rollout),
            stable=snapshot.stable.version if snapshot.stable else None,
            trial=snapshot.trial.version if snapshot.trial else snapshot.asked[0],
            going_on=_on_trial(snapshot),
            carrier=max(map(carrier_number, (snapshot.rollout, snapshot.workload, snapshot.route))),
            unattended=snapshot.unattended,
            subject={**(snapshot.rollout or {}), "apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind},
        )

    async def note(self, taken: GuardRollback) -> None:
        await self._cluster.patch(ROLLOUTS, self._config.rollout, guard_note_patch(taken))

    def fleet(self, carrier: Carrier) -> CarriedRegion:
        if self._config.theirs:
            return ReferencedFleet(self._config, cluster=self._cluster, clock=self._clock, carrier=carrier)
        return ArgoFleet(
            self._config,
            cluster=self._cluster,
            render=lambda _: (),
            clock=self._clock,
            carrier=carrier,
        )


def _written(rollout: Json | None) -> datetime | None:
    entries = template_writers(rollout) if rollout else []
    return max((at for each in entries if (at := parse_time(each.get("time")))), default=None)


def _on_trial(snapshot: RegionSnapshot) -> bool:
    return (
        snapshot.stable is not None
        and not snapshot.is_at_rest
        and snapshot.foreign_change is None
        and not snapshot.foreign_objects
    )
