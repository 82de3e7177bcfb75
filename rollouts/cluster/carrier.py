"""One process at a time carries a delivery in a region: its Lease, and the fence that keeps replaced processes out.

Only a compare-and-set of the API server tells which of two processes carries a delivery. A carrier has a number:
`leaseTransitions` of the Lease. Anyone who takes it over has the next one. The Lease alone stops nobody, since
a process that was replaced may still be about to write. So the number is marked on the objects that move users, such
as the Rollout and the route, before a new carrier does anything. Whatever is written there is written onto what was
read (`resourceVersion`): a replaced process is answered 409, reads again, meets a number above its own, and stops.
Nothing here depends on clocks or on pauses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from rollouts.cluster.model import Place, annotation, guard_note
from rollouts.errors import Conflict, FleetError, NotFound, NotTheCarrier
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import time_at
from rollouts.kube.resources import LEASES, Resource
from rollouts.kube.retry import time_left
from rollouts.manifests import conventions
from rollouts.manifests.conventions import CARRIED_BY, CARRIED_FOR, CARRIER
from rollouts.model import CarrierHeartbeat, GuardRollback
from tidegate.core.clock import Clock, Life, Watch
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, MANAGED_BY

LIVE_SECONDS = 60.0
"""A Lease that was renewed longer ago looks like that of a process which is gone: one that lives renews every 10 s."""

RENEW_SECONDS = 10.0
"""Between two signs of life, far less than `LIVE_SECONDS`: a request or two may be lost."""

GUARD = "guard"
"""Token of a region's guard. It holds the Lease while it takes a trial back; a guard that finds it there, silent, goes
on where another one died, and a delivery waits until it is done."""

UNATTENDED_SECONDS = 900.0
"""When the spec does not say how long a trial may go on while nobody carries it."""


class Carrier(Value):
    """A process that carries a delivery, or several that do so together: then they have one token."""

    token: str
    """Of the delivery's ledger; nobody else has it."""
    who: str
    """In words for people: host and process."""
    over: frozenset[str] = frozenset()
    """Tokens of those that are known to be gone: their Leases are taken over at once."""
    insists: bool = False
    """Takes the Lease from the one who holds it. For a way back, which is anybody's right."""
    hands_on: bool = False
    """Leaves the Lease as it is at its end, for the next process of the same delivery."""
    continues: bool = False
    """Comes after processes that handed the delivery on: the Lease may be ours before we take it."""
    unattended_seconds: float = UNATTENDED_SECONDS
    """How long nothing may be heard of it until the region takes its trial back by itself."""
    key: str = ""
    """That the delivery was opened with, as a workflow opens one with its UID. The one who knows it may take the Lease
    of this delivery's processes without asking the ledger who they are; empty for none."""


class LeaseRecord(Value):
    """What a Lease says."""

    token: str
    """Empty when nobody holds it."""
    number: int
    renewed: datetime | None
    lasts: timedelta
    who: str = ""
    key: str = ""


def read_lease(found: Json) -> LeaseRecord:
    """A Lease as the API server gives it."""
    spec = found.get("spec") or {}
    return LeaseRecord(
        token=str(spec.get("holderIdentity") or ""),
        number=int(spec.get("leaseTransitions") or 0),
        renewed=time_at(spec, "renewTime"),
        lasts=timedelta(seconds=int(spec.get("leaseDurationSeconds") or UNATTENDED_SECONDS)),
        who=annotation(found, CARRIED_BY),
        key=annotation(found, CARRIED_FOR),
    )


async def seize(
    cluster: KubeClient, name: str, found: Json | None, carrier: Carrier, *, now: datetime, above: int
) -> Json:
    """The Lease in the hands of `carrier`, by compare-and-set; made where there is none.

    It gets the next number, unless he has it already; `name` is the delivery's, `above` the highest number that was
    seen on its objects.

    Raises:
        Conflict: somebody was faster.
    """
    labels = {**MANAGED_BY, DELIVERY: name}
    metadata = {"name": conventions.lease(name), "namespace": cluster.namespace, "labels": labels}
    bare: Json = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
    write = cluster.replace if found else cluster.create
    return await write(LEASES, taken_lease(found or bare, carrier, now, above=above))


def taken_lease(found: Json, carrier: Carrier, now: datetime, *, above: int = 0) -> Json:
    """The same Lease in the hands of `carrier`."""
    record, since, number = read_lease(found), now, 0
    if record.token == carrier.token:
        since, number = time_at(found, "spec", "acquireTime") or now, record.number
    # A MicroTime always has six digits after the second.
    renewed, acquired = (moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") for moment in (now, since))
    spec = {
        **(found.get("spec") or {}),
        "holderIdentity": carrier.token,
        "leaseTransitions": number or max(record.number, above) + 1,
        "acquireTime": acquired,
        "renewTime": renewed,
        "leaseDurationSeconds": max(1, round(carrier.unattended_seconds)),
    }
    return {**annotated(found, {CARRIED_BY: carrier.who, CARRIED_FOR: carrier.key}), "spec": spec}


def annotated(found: Json, annotations: Mapping[str, str]) -> Json:
    """The same Lease with these annotations; without those that are empty."""
    metadata = found["metadata"]
    said = {**(metadata.get("annotations") or {}), **annotations}
    return {**found, "metadata": {**metadata, "annotations": {key: value for key, value in said.items() if value}}}


def released_lease(found: Json) -> Json:
    """The same Lease with nobody to hold it; its number stays, so that the next one's is higher."""
    spec = {key: value for key, value in (found.get("spec") or {}).items() if key != "holderIdentity"}
    return {**found, "spec": spec}


def carrier_number(found: Json | None) -> int:
    """The number of the carrier whose an object is; 0 when nobody marked it."""
    said = annotation(found, CARRIER)
    return int(said) if said.isdecimal() else 0


LOOK_SECONDS = 1.0
"""Between two looks at the Lease of somebody who may be gone."""

log = logging.getLogger(__name__)


class Fence:
    """The right of one process to write in one region."""

    def __init__(
        self,
        config: Place,
        cluster: KubeClient,
        marked: Sequence[tuple[Resource, str]],
        clock: Clock,
        carrier: Carrier | None,
    ) -> None:
        """`marked` are the objects that move users, by kind and name. Without a `carrier` it can only be looked at."""
        self._config, self._cluster, self._clock, self._carrier = config, cluster, clock, carrier
        self._marked = tuple(marked)
        self._lease: Json | None = None
        self.inside = False
        """Whether the Lease was taken, and what is there marked."""
        self._has_succeeded = False
        self._lost: LeaseRecord | None = None
        self._noted: dict[str, str] = {}

    @property
    def insists(self) -> bool:
        """Whether going back must not wait for the right to do so."""
        return not self.inside and self._who.insists

    async def enter(self) -> None:
        """Take the Lease, and mark what is there; nothing when it was taken before.

        Raises:
            NotTheCarrier: somebody else carries the delivery here, and lives.
            FleetError: the API server does not answer, or does not let us.
        """
        if self.inside:
            return
        await self.take()
        await self.mark()
        self.inside = True

    async def succeed(self) -> None:
        """Where somebody was who is replaced by us, `enter`; nothing elsewhere, and nothing the second time.

        A region in which nothing is left to do is never desired anything again: the one who was replaced must not go on
        there, least of all with taking it back.
        """
        if self._has_succeeded or self._carrier is None or not self._carrier.over:
            return
        if await self._found() is not None:
            await self.enter()
        self._has_succeeded = True

    async def take(self) -> Json:
        """The Lease alone; nothing is marked. As `enter`, for the one who has something to do that cannot wait."""
        if self._lease is None:
            self._lease = await self._take(await self.highest())
        return self._lease

    async def highest(self) -> int:
        """The highest number of a carrier on the objects."""
        return max([carrier_number(await self._cluster.find(kind, name)) for kind, name in self._marked])

    def allows(self, found: Json | None) -> None:
        """Return unless the object, as it was just read, is somebody else's by now.

        Raises:
            NotTheCarrier: it has a higher number than ours, or our Lease was taken.
        """
        if self._lease is None:
            return
        ours = read_lease(self._lease).number
        if self._lost or carrier_number(found) > ours:
            raise self._replaced(self._lost, guard_note(found))

    async def mark(self) -> None:
        """Say on the objects that they are ours, as far as they are there and do not say so."""
        ours = read_lease(self._lease).number if self._lease else 0
        for kind, name in self._marked:
            while (found := await self._cluster.find(kind, name)) is not None:
                self.allows(found)
                if carrier_number(found) >= ours or self._config.foreign(found):
                    break
                version, said = found["metadata"]["resourceVersion"], {CARRIER: str(ours)}
                with suppress(Conflict):
                    await self._cluster.patch(
                        kind, name, {"metadata": {"resourceVersion": version, "annotations": said}}
                    )
                    break

    async def renew(self) -> None:
        """Say that we live. Where somebody took the Lease, nothing more is written here."""
        if self._lease is None or self._lost:
            return
        try:
            renewed = taken_lease(self._lease, self._who, self._clock.now())
            self._lease = await self._cluster.replace(LEASES, renewed)
        except (Conflict, NotFound):
            await self._look_again(self._lease)

    async def note(self, key: str, text: str) -> None:
        """Say something on our Lease, as an annotation; nothing where it is empty.

        Raises:
            NotTheCarrier: somebody took it.
        """
        self._noted[key] = text
        while True:
            lease = await self.take()
            if self._lost:
                raise self._replaced(self._lost)
            if annotation(lease, key) == text:
                return
            try:
                self._lease = await self._cluster.replace(LEASES, annotated(lease, {key: text}))
            except (Conflict, NotFound):
                await self._look_again(lease)

    async def said(self, key: str) -> str:
        """What the Lease says by an annotation, no matter who holds it; empty where it says nothing."""
        return annotation(await self._found(), key)

    async def leave(self) -> None:
        """Give the Lease back, so that nobody has to wait for it to run out. Never raises."""
        if self._lost or self._who.hands_on:
            return
        try:
            # An earlier process of the delivery may have left it to us, which had nothing left to do here.
            ours = await self._found() if self._lease is None and self._who.continues else self._lease
            if ours is not None and read_lease(ours).token == self._who.token:
                await self._cluster.replace(LEASES, released_lease(ours))
        except FleetError as error:
            log.info("%s: its Lease runs out by itself: %s", self._config.region, error)

    async def holder(self) -> CarrierHeartbeat | None:
        """Who holds the Lease; None when nobody does."""
        found = await self._found()
        if found is None or not (record := read_lease(found)).token:
            return None
        who, seconds = record.who or record.token, record.lasts.total_seconds()
        return CarrierHeartbeat(who=who, heard=record.renewed, unattended_seconds=seconds, key=record.key)

    async def _found(self) -> Json | None:
        return await self._cluster.find(LEASES, conventions.lease(self._config.name))

    async def _take(self, above: int) -> Json:
        """The Lease in our hands; one that somebody holds who may be gone is watched until that is clear.

        A guard has it until the trial is rolled back, and no other part in the delivery: it is waited for as long as
        the operation may take.
        """
        met, watch = None, Watch()
        while True:
            found, now = await self._found(), self._clock.now()
            record = read_lease(found) if found else None
            try:
                if record is None or self._may_take(record, watch):
                    return await seize(self._cluster, self._config.name, found, self._who, now=now, above=above)
            except Conflict:
                continue
            if met is None and record.token == GUARD:
                log.warning("%s: waiting for its guard, which is taking a trial back", self._config.region)
            met = met or record
            # A guard renews while it works, and gives the Lease back.
            waits = record.token == GUARD and time_left() > LOOK_SECONDS
            if not waits and (record.token, record.renewed) != (met.token, met.renewed):
                raise self._replaced(record)
            await self._clock.sleep(LOOK_SECONDS)

    def _may_take(self, record: LeaseRecord, watch: Watch) -> bool:
        """Whether the Lease is ours for the asking: ours already, nobody's, or that of one who is gone."""
        who, life = self._who, Life.DEAD
        # Looked at even where it does not matter: the watch needs each look.
        if record.token and record.renewed is not None:
            now, monotonic = self._clock.now(), self._clock.monotonic()
            life = watch.life(record.token, record.renewed, now=now, monotonic=monotonic, allowed=LIVE_SECONDS)
        same_delivery = who.key != "" and record.key == who.key
        ours = record.token in {"", who.token, *who.over} or same_delivery
        return ours or who.insists or life is Life.DEAD

    async def _look_again(self, before: Json) -> None:
        """Somebody wrote the Lease: another process of ours, or one that took it."""
        found = await self._found()
        if found is None:
            # Somebody deleted it; our number is on the objects still.
            self._lease, self.inside = None, False
            await self.enter()
            for key, text in self._noted.items():
                await self.note(key, text)
            return
        record = read_lease(found)
        if (record.token, record.number) == (self._who.token, read_lease(before).number):
            self._lease = found
        else:
            self._lost = record

    @property
    def _who(self) -> Carrier:
        assert self._carrier is not None, "the one who carries no delivery writes nothing"
        return self._carrier

    def _replaced(self, by: LeaseRecord | None, taken: GuardRollback | None = None) -> NotTheCarrier:
        name, region = self._config.name, self._config.region
        if taken:
            return NotTheCarrier(f"{name} in {region}: {taken}", hint="deliver it again with `tidegate deliver`")
        who = by.who if by and by.who else "another process"
        return NotTheCarrier(
            f"{name} in {region} is carried by {who} now",
            hint="see `tidegate status`; wait for it, or roll its regions back with `tidegate rollback`",
        )
