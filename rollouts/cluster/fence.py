"""Lets one process at a time carry a delivery in a region, and keeps out those that were replaced.

A Lease says who carries it; alone it stops nobody, since a process that was replaced may still be about to write. So
its number is marked on the two objects that move users, the Rollout and the route, before a new carrier does anything.
Whatever is written there is written onto what was looked at (`resourceVersion`): one that was replaced is answered 409,
looks again, meets a number above its own, and stops. Nothing here depends on clocks or on pauses.
"""

from __future__ import annotations

import logging

from rollouts.cluster import lease
from rollouts.cluster.lease import Carrier, Held
from rollouts.cluster.place import Place
from rollouts.cluster.route import RouteKind
from rollouts.errors import Conflict, FleetError, NotFound, NotTheCarrier
from rollouts.kube.model import Json, Resource
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import LEASES, ROLLOUTS
from rollouts.manifests import conventions
from rollouts.manifests.belonging import stranger
from tidegate.core.clock import Clock

LOOK_SECONDS = 1.0
"""Between two looks at the Lease of somebody who may be gone."""

log = logging.getLogger(__name__)


class Fence:
    """The right of one process to write in one region."""

    def __init__(
        self, place: Place, cluster: Cluster, routes: RouteKind, clock: Clock, carrier: Carrier | None
    ) -> None:
        """Without a `carrier` it can only be looked at."""
        self._place = place
        self._cluster = cluster
        self._marked = (ROLLOUTS, routes.resource)
        self._clock = clock
        self._carrier = carrier
        self._lease: Json | None = None
        self._inside = False
        self._lost: Held | None = None

    @property
    def insists(self) -> bool:
        """Whether going back must not wait for the right to do so."""
        return not self._inside and self._who.insists

    @property
    def inside(self) -> bool:
        """Whether the Lease was taken, and what is there marked."""
        return self._inside

    async def enter(self) -> None:
        """Take the Lease, and mark what is there; nothing when it was taken before.

        Raises:
            NotTheCarrier: somebody else carries the delivery here, and lives.
            FleetError: the API server does not answer, or does not let us.
        """
        if self._inside:
            return
        number = lease.read(await self.take()).number
        for kind in self._marked:
            await self.mark(kind, number)
        self._inside = True

    async def take(self) -> Json:
        """The Lease alone; nothing is marked. As `enter`, for whoever has something to do that cannot wait."""
        if self._lease is None:
            there = [await self._get(kind, self._place.name) for kind in self._marked]
            self._lease = await self._take(above=max(map(lease.number_on, there)))
        return self._lease

    def allows(self, found: Json | None) -> None:
        """Return unless the object, as it was just read, is somebody else's by now.

        Raises:
            NotTheCarrier: it has a higher number than ours, or our Lease was taken.
        """
        if self._lease is None:
            return
        ours = lease.read(self._lease).number
        if self._lost or lease.number_on(found) > ours:
            raise self._replaced(self._lost)

    async def mark(self, kind: Resource, number: int | None = None) -> None:
        """Say on the delivery's object of that kind that it is ours; nothing where it says so, or none is ours.

        Raises:
            NotTheCarrier: it says that it is somebody else's, who came after us.
        """
        ours = number or (lease.read(self._lease).number if self._lease else 0)
        while (found := await self._get(kind, self._place.name)) is not None:
            self.allows(found)
            if lease.number_on(found) >= ours or stranger(found, self._place.name):
                return
            try:
                await self._cluster.patch(kind, self._place.name, lease.marking(found, ours))
            except Conflict:
                continue
            return

    async def renew(self) -> None:
        """Say that we live. Where somebody took the Lease, nothing more is written here.

        Raises:
            FleetError: the API server does not answer, or does not let us.
        """
        if self._lease is None or self._lost:
            return
        try:
            renewed = lease.taken(self._lease, self._who, self._clock.now())
            self._lease = await self._cluster.replace(LEASES, renewed)
        except (Conflict, NotFound):
            await self._look_again(self._lease)

    async def leave(self) -> None:
        """Give the Lease back, so that nobody has to wait for it to run out. Never raises."""
        if self._lease is None or self._lost or self._who.hands_on:
            return
        try:
            await self._cluster.replace(LEASES, lease.given_back(self._lease))
        except FleetError as error:
            log.info("%s: its Lease runs out by itself: %s", self._place.region, error)

    async def _take(self, *, above: int) -> Json:
        """The Lease in our hands; one that somebody holds who may be gone is watched until that is clear."""
        name, met = self._place.name, None
        while True:
            found, now = await self._get(LEASES, conventions.lease(name)), self._clock.now()
            try:
                if found is None:
                    made = lease.first(name, self._cluster.namespace, self._who, now, above=above)
                    return await self._cluster.create(LEASES, made)
                held = lease.read(found)
                if lease.may_take(held, self._who, now):
                    return await self._cluster.replace(LEASES, lease.taken(found, self._who, now, above=above))
            except Conflict:
                continue
            met = met or held
            if (held.token, held.renewed) != (met.token, met.renewed):
                raise self._replaced(held)
            await self._clock.sleep(LOOK_SECONDS)

    async def _look_again(self, before: Json) -> None:
        """Somebody wrote the Lease: another process of ours, or one that took it."""
        found = await self._get(LEASES, conventions.lease(self._place.name))
        if found is None:
            # Somebody deleted it; our number is on the objects still.
            self._lease, self._inside = None, False
            await self.enter()
            return
        held = lease.read(found)
        if (held.token, held.number) == (self._who.token, lease.read(before).number):
            self._lease = found
        else:
            self._lost = held

    async def _get(self, kind: Resource, name: str) -> Json | None:
        try:
            return await self._cluster.get(kind, name)
        except NotFound:
            return None

    @property
    def _who(self) -> Carrier:
        assert self._carrier is not None, "whoever carries no delivery writes nothing"
        return self._carrier

    def _replaced(self, by: Held | None) -> NotTheCarrier:
        name, region = self._place.name, self._place.region
        who = by.who if by and by.who else "another process"
        return NotTheCarrier(
            f"{name} in {region} is carried by {who} now",
            hint="see `tidegate status`; wait for it, or take its regions back with `tidegate rollback`",
        )
