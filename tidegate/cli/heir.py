"""Who carries on a delivery that somebody else has asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.hearing import Hearing
from pipelines.identity.bound import ledger_digest, plan_digest
from pipelines.identity.model import NAMED, RESUME, Person, Proof, Statement
from pipelines.ports import Event
from pipelines.recorded import plan_of
from pipelines.rights import refuse_heir
from pipelines.trust import Trusted
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from tidegate.cli.kept_spec import kept_spec
from tidegate.cli.prover import Means, identities_here
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError


@dataclass(frozen=True)
class Heir:
    """Somebody who wants to carry on a delivery."""

    by: str | None
    means: Means
    trusted: Trusted


def entitled(heir: Heir, deliveries: MlflowDeliveries, delivery: str) -> Event | None:
    """The event that says who carries the delivery on, to be written once that is so; None when nobody said it.

    Raises:
        UsageError: they may not, by what the spec says and by who has asked for the delivery.
    """
    events = deliveries.events(delivery)
    spec = kept_spec(deliveries, delivery, events)
    identities = identities_here(heir.trusted)
    requester = asyncio.run(Hearing(identities).requester(delivery, events))
    unproven = any((event.step, event.kind) == ("delivery", "requested") for event in events) and requester is None
    prover, now = heir.means.prover, SystemClock().now()
    if prover is not None and heir.by is not None:
        raise UsageError("--by is for a name without proof", hint="leave it out: the key or the token says who it is")
    proof: Proof | None = None
    person: Person | None = None
    if prover is not None:
        proof = prover.prove(_statement(delivery, events))
        person = identities.verify(proof, now)
    refuse_heir(spec.resume, person, heir.by, requester, unproven=unproven)
    if person is None and heir.by is None:
        return None
    who = str(person) if person else f"{heir.by} ({NAMED})"
    data: dict[str, object] = {"by": person.identity if person else heir.by}
    data |= {"proof": proof.model_dump()} if proof else {}
    return Event(at=now, step="delivery", kind="resumed", message=who, data=data)


def _statement(delivery: str, events: Sequence[Event]) -> str:
    """Of all that has happened until now: it cannot be said again of what happens later."""
    version = plan_of(events).version
    return Statement(
        says="resume",
        question=RESUME,
        delivery=delivery,
        model=version.name,
        version=version.version,
        plan=plan_digest(events),
        evidence=ledger_digest(events),
        at=SystemClock().now(),
    ).text
