"""The Lease of one delivery in one region: who carries it, and when that was last heard of. Pure.

The API server is the only place where a compare-and-set tells which of two processes carries a delivery. A carrier has
a number, which is `leaseTransitions` of the Lease; whoever takes it over has the next one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rollouts.argo.model import as_time
from rollouts.kube.model import Json
from rollouts.kube.resources import LEASES
from rollouts.manifests import conventions
from rollouts.manifests.conventions import CARRIED_BY, CARRIER, DELIVERY, MANAGED_BY
from tidegate.core.model import Value

LIVE_SECONDS = 60.0
"""A Lease that was renewed more lately is that of a process which lives: it renews every 10 s."""

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
    """Takes the Lease from whoever holds it. For a way back, which is anybody's right."""
    hands_on: bool = False
    """Leaves the Lease as it is at its end, for the next process of the same delivery."""
    unattended_seconds: float = UNATTENDED_SECONDS
    """How long nothing may be heard of it until the region takes its trial back by itself."""


class Held(Value):
    """What a Lease says."""

    token: str
    """Empty when nobody holds it."""
    number: int
    renewed: datetime | None
    lasts: timedelta
    who: str = ""

    def lives(self, now: datetime) -> bool:
        """Whether whoever holds it was heard of just now."""
        return bool(self.token and self.renewed) and self.silence(now) < timedelta(seconds=LIVE_SECONDS)

    def unattended(self, now: datetime) -> bool:
        """Whether nothing was heard of anybody for longer than its last carrier allowed."""
        return self.silence(now) > self.lasts

    def silence(self, now: datetime) -> timedelta:
        """How long nothing was heard; for ever when nothing ever was."""
        return now - self.renewed if self.renewed else timedelta.max


def read(found: Json) -> Held:
    """A Lease as the API server gives it."""
    spec = found.get("spec") or {}
    return Held(
        token=str(spec.get("holderIdentity") or ""),
        number=int(spec.get("leaseTransitions") or 0),
        renewed=as_time(spec.get("renewTime")),
        lasts=timedelta(seconds=int(spec.get("leaseDurationSeconds") or UNATTENDED_SECONDS)),
        who=str((found["metadata"].get("annotations") or {}).get(CARRIED_BY) or ""),
    )


def may_take(held: Held, carrier: Carrier, now: datetime) -> bool:
    """Whether the Lease is `carrier`'s for the asking: his already, nobody's, or that of one who is gone."""
    ours = held.token in {"", carrier.token} or held.token in carrier.over
    return ours or carrier.insists or not held.lives(now)


def first(name: str, namespace: str, carrier: Carrier, now: datetime, *, above: int) -> Json:
    """The Lease where there is none; `name` is the delivery's, `above` the highest number that was seen there."""
    metadata = {"name": conventions.lease(name), "namespace": namespace, "labels": {**MANAGED_BY, DELIVERY: name}}
    bare: Json = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
    return _given(bare, carrier, number=above + 1, at=now, since=now)


def taken(found: Json, carrier: Carrier, now: datetime, *, above: int = 0) -> Json:
    """The same Lease in the hands of `carrier`; with the next number, unless he has it already."""
    held = read(found)
    if held.token == carrier.token:
        since = as_time((found.get("spec") or {}).get("acquireTime"))
        return _given(found, carrier, number=held.number, at=now, since=since or now)
    return _given(found, carrier, number=max(held.number, above) + 1, at=now, since=now)


def given_back(found: Json) -> Json:
    """The same Lease with nobody to hold it; its number stays, so that the next one's is higher."""
    spec = {key: value for key, value in (found.get("spec") or {}).items() if key != "holderIdentity"}
    return {**found, "spec": spec}


def number_on(found: Json | None) -> int:
    """The number of the carrier whose an object is; 0 when nobody marked it."""
    said = str((((found or {}).get("metadata") or {}).get("annotations") or {}).get(CARRIER) or "")
    return int(said) if said.isdecimal() else 0


def marking(found: Json, number: int) -> Json:
    """A merge patch that says whose the object is, onto what was looked at."""
    metadata = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": {CARRIER: str(number)}}
    return {"metadata": metadata}


def _given(found: Json, carrier: Carrier, *, number: int, at: datetime, since: datetime) -> Json:
    metadata = found["metadata"]
    annotations = {**(metadata.get("annotations") or {}), CARRIED_BY: carrier.who}
    spec = {
        **(found.get("spec") or {}),
        "holderIdentity": carrier.token,
        "leaseTransitions": number,
        "acquireTime": _micro(since),
        "renewTime": _micro(at),
        "leaseDurationSeconds": max(1, round(carrier.unattended_seconds)),
    }
    return {**found, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def _micro(moment: datetime) -> str:
    """A MicroTime, which always has six digits after the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
