"""The guard of a region: runs in its cluster and rolls back a trial that no process carries any more.

Anyone who delivers renews a Lease. A trial whose Lease was silent for longer than it allows goes back to the stable, by
the same way back as every other. The Lease is taken by a compare-and-set on what was judged, or made where somebody
deleted it: a carrier that is heard of at that very moment keeps its region.

Clocks differ, and an API server that was away for a while shows a Lease that nobody could renew meanwhile. So silence
counts by the guard's own clock from the moment at which it saw something change, and by what the Lease says only as
long as it has never seen it change. And before it counts at all, the guard has seen the very same for a while without a
gap: the one who lives had the time to renew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from rollouts.cluster.carrier import GUARD, UNATTENDED_SECONDS, Carrier, LeaseRecord, read_lease, released_lease, seize
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.model import Place, RegionConfig
from rollouts.cluster.peers import PeersSnapshot, RoutePlace
from rollouts.cluster.referenced import ReferencedFleet
from rollouts.cluster.region import AnyRegion
from rollouts.cluster.route import RouteFleet
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.errors import Conflict, FleetError, Forbidden, NotFound
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import LEASES
from rollouts.manifests import conventions
from rollouts.manifests.conventions import UNATTENDED
from rollouts.model import GuardRollback, RegionState
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError
from tidegate.core.model import Json, Value

UNBROKEN_SECONDS = 30.0
"""Three beats of a carrier that lives (`carrier.RENEW_SECONDS`)."""

GAP_SECONDS = 30.0
"""Between two looks; after a longer one the view begins again."""


class SignsOfLife(Value):
    """Everything that a live carrier changes, or a person acting by hand; not what an autoscaler changes."""

    record: LeaseRecord | None
    """The Lease; None where there is none: a carrier that lives makes it again with its next beat."""
    asked: tuple[str, str, int]
    """Version, digest and attempt that the region is asked for."""
    step: int
    """How far the trial is: the step of the Rollout."""


class SilenceTracker:
    """Measures how long a region's carrier has been silent; moments are seconds of a clock that only goes on."""

    def __init__(self) -> None:
        self._signs: SignsOfLife | None = None
        self._first, self._changed = 0.0, False
        """Since when signs are as they are now, and whether they were seen to become so; else they may be old."""
        self._unbroken, self._last = 0.0, 0.0
        """Since when they were seen so without a gap, and the last look."""
        self._blind = True

    def sees(self, signs: SignsOfLife, monotonic: float) -> None:
        """What is there at that moment."""
        before, gap = self._signs, self._blind or monotonic - self._last > GAP_SECONDS
        if before is None:
            self._first = monotonic
        elif signs != before:
            self._first, self._changed = monotonic, True
        if signs != before or gap:
            self._unbroken = monotonic
        self._signs, self._last, self._blind = signs, monotonic, False

    def is_blind(self) -> None:
        """A look showed nothing: the one who lives could not have been heard either."""
        self._blind = True

    def silence(self, now: datetime, monotonic: float) -> timedelta:
        """How long nothing was heard; none before it was looked at long enough without a gap."""
        signs = self._signs
        if signs is None or self._blind or self._last - self._unbroken < UNBROKEN_SECONDS:
            return timedelta()
        own = timedelta(seconds=monotonic - self._first)
        if self._changed:
            return own
        record = signs.record
        # A Lease that was given back says nothing of a person who acts by hand since.
        return max(own, now - record.renewed) if record and record.token and record.renewed else own


View = RegionSnapshot | PeersSnapshot

POLL_SECONDS = 10.0
"""Between two looks, also while nobody answers."""

WHO = "the region's guard"

log = logging.getLogger(__name__)


class GuardAction(NamedTuple):
    """What a guard did."""

    taken: GuardRollback
    state: RegionState
    """The region afterwards."""


class Guard:
    """The guard of one delivery in one region."""

    def __init__(
        self, config: Place, cluster: KubeClient, clock: Clock, tell: Callable[[str], None] = log.info
    ) -> None:
        """`tell` gets a line for whatever is rolled back, and one whenever what is wrong becomes another."""
        self._config, self._cluster, self._clock, self._tell = config, cluster, clock, tell
        self._region, self._vigil, self._may = _region(config, cluster, clock), SilenceTracker(), False
        self._began = False
        """Whether the Lease is ours because we took it, and not a guard before us."""
        self._lasts = timedelta(seconds=UNATTENDED_SECONDS)
        """How long the last carrier that was seen may be silent."""
        self._told: GuardRollback | None = None
        self.problem = "it has not looked yet"
        """Why the region is not guarded now; empty while it is."""

    async def run(self) -> None:
        """Look every few seconds, until the task is cancelled; an API server that is away is asked at the same pace."""
        while True:
            await self.once()
            await self._clock.sleep(POLL_SECONDS)

    async def once(self) -> None:
        """Look, and say what came of it."""
        problem, back = "", None
        try:
            back = await self.check()
        except TidegateError as error:
            problem = str(error)
        if problem != self.problem:
            self._tell(f"not guarded: {problem}" if problem else "guarded")
        self.problem = problem
        if back:
            left = f"; {back.state.problem}" if back.state.problem else ""
            stable = back.state.stable.version if back.state.stable else "none"
            self._tell(f"{back.state.region}: {back.taken}; all users are on version {stable}{left}")

    async def check(self) -> GuardAction | None:
        """Check once, and roll the trial back where nobody carries it; None where there was nothing to do.

        Raises:
            FleetError: the API server does not answer, or does not let us. What was begun goes on with the next look.
            NotOurs: the Rollout is somebody else's.
        """
        try:
            await self._require_rights()
            return await self._check()
        except FleetError as error:
            self._vigil.is_blind()
            self._may = self._may and not isinstance(error, Forbidden)
            raise

    async def _check(self) -> GuardAction | None:
        found = await self._cluster.find(LEASES, conventions.lease(self._config.name))
        record, seen = read_lease(found) if found else None, await self._region.look()
        self._lasts = record.lasts if record else self._lasts
        moment = self._clock.monotonic()
        signs = SignsOfLife(record=record, asked=seen.asked, step=seen.step)
        self._vigil.sees(signs, moment)
        if not seen.going_on:
            # The controller is done as well, or a guard that died when all was done left the Lease behind.
            self._began = False
            if record and record.token == GUARD and found:
                await self._cluster.replace(LEASES, released_lease(found))
            elif record is None or not record.token:
                await self._stop_unused(seen)
            return None
        silence = self._vigil.silence(self._clock.now(), moment)
        goes_on = record is not None and record.token == GUARD and (self._began or bool(silence))
        if not goes_on and silence <= self._lasts:
            return None
        return await self._take_back(found, seen, silence)

    async def _stop_unused(self, seen: View) -> None:
        """The engines of a backend that has had no users for as long as the spec keeps them."""
        if isinstance(seen, PeersSnapshot) and (peer := seen.unused(self._clock.now())):
            fleet = RouteFleet(
                seen.place, cluster=self._cluster, clock=self._clock, carrier=Carrier(token=GUARD, who=WHO)
            )
            await fleet.stop_unused()
            await fleet.leave()
            self._tell(f"{self._config.region}: {peer}, which has no users, was scaled down")

    async def _take_back(self, found: Json | None, seen: View, silence: timedelta) -> GuardAction | None:
        now = self._clock.now()
        carrier = Carrier(token=GUARD, who=WHO, unattended_seconds=self._lasts.total_seconds())
        above = await self._region.fence.highest()
        try:
            await seize(self._cluster, self._config.name, found, carrier, now=now, above=above)
        except (Conflict, NotFound):
            log.info("%s: somebody was heard of just now", self._config.region)
            return None
        self._began = True
        taken = await self._noted(read_lease(found) if found else None, seen, silence)
        # As everybody goes back; the Lease is kept while it lasts, and also where it fails.
        fleet = _region(self._config, self._cluster, self._clock, carrier)
        beats = asyncio.create_task(fleet.keep_renewing())
        try:
            state = await fleet.rollback(seen.serving)
        finally:
            beats.cancel()
            await asyncio.wait([beats])
        if state.problem is None:
            await fleet.leave()
        # Users are back, and the controller may see it a minute later: until then the Lease is kept, and the way back
        # written again, for its own silence must not count as that of a carrier that died.
        self._began = state.problem is not None
        if self._told == taken:
            return None
        self._told = taken
        return GuardAction(taken, state)

    async def _noted(self, record: LeaseRecord | None, seen: View, silence: timedelta) -> GuardRollback:
        """Say in the region what is about to happen, before the one who was replaced can ask."""
        if record and record.token == GUARD and seen.unattended:
            # One before it had begun.
            return seen.unattended
        now = self._clock.now()
        who = record.who if record else "its Lease is gone"
        taken = GuardRollback(version=seen.on_trial, at=now, since=now - silence, who=who)
        try:
            note = {"metadata": {"annotations": {UNATTENDED: taken.model_dump_json()}}}
            await self._cluster.patch(*self._region.mover, note)
        except FleetError as error:
            # Users come first; without the note the one who comes back learns less.
            log.warning("%s: not noted in the region: %s", self._config.region, error)
        return taken

    async def _require_rights(self) -> None:
        """Ask once whether all that a way back needs is allowed: at night is too late."""
        if self._may:
            return
        asked = [each for right in self._region.rights for each in right.questions()]
        missing = [each for each in asked if not await self._cluster.allowed(each)]
        if missing:
            raise Forbidden(
                f"{self._config.name} in {self._config.region}: may not {', '.join(map(str, missing))}",
                status=403,
                hint="apply the set-up part of `tidegate rollout render`",
            )
        self._may = True


def _region(place: Place, cluster: KubeClient, clock: Clock, carrier: Carrier | None = None) -> AnyRegion:
    if isinstance(place, RoutePlace):
        return RouteFleet(place, cluster=cluster, clock=clock, carrier=carrier)
    assert isinstance(place, RegionConfig), "a region is one of a Rollout, or of two backends of a route"
    kind = ReferencedFleet if place.theirs else ArgoFleet
    return kind(place, cluster=cluster, clock=clock, carrier=carrier)
