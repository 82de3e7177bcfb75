"""A delivery that another process opened: what its ledger and kept files say, and who may carry it on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pipelines.authority.approvals import ledger_digest, plan_digest
from pipelines.authority.verification import USED, AnswerVerifier, first_uses, refuse_heir, used_before
from pipelines.events.artifacts import SPEC, bring_evidence, bring_spec, owed, vouched
from pipelines.events.history import plan_of, spec_file_of
from pipelines.events.payloads import DeliveryResumed
from pipelines.plan.planner import refuse_other_files, refuse_other_plan
from pipelines.ports import Deliveries, DeliveryLedger
from pipelines.spec.fleets import LocalFleet
from pipelines.spec.policy import golden_set
from pipelines.spec.trust import Trusted
from pipelines.state import StateFolder
from pipelines.statements import NAMED, RESUME, Person, Proof, Prover, Statement
from registry.model import Event
from registry.model_files import digest_files
from tidegate.app.wiring.fleets import running_host
from tidegate.app.wiring.model import AttachedDelivery
from tidegate.app.wiring.specs import kept_spec, read_delivery
from tidegate.app.wiring.trust import local_identities, named_trust
from tidegate.core.clock import SystemClock
from tidegate.core.errors import Refused, UsageError


def attach_delivery(
    deliveries: Deliveries,
    ledger: DeliveryLedger,
    state: Path,
    tracking_uri: str | None,
    *,
    patience: timedelta,
    key: str | None = None,
) -> AttachedDelivery:
    """Read the plan, and bring the spec and the evidence attached.

    Raises:
        UsageError: they were not kept.
        NotAsPlanned: they are not those with which the delivery was opened.
    """
    events, folder = ledger.recorded(), StateFolder(state)
    plan, spec_file = plan_of(events), spec_file_of(events)
    if spec_file is None:
        raise UsageError(f"the spec of delivery {ledger.delivery} was not kept", hint="deliver the version again")
    own = folder.delivery(ledger.delivery)
    files = plan.resolved.files if plan.resolved else ()
    path = bring_spec(deliveries, ledger.delivery, spec_file, own, files)
    refuse_other_files(plan.resolved, digest_files(own / SPEC), spec_file, ledger.delivery)
    spec = read_delivery(path, kept_below=own / SPEC)
    refuse_other_plan(plan, spec, prompts=len(golden_set(spec, path.parent)), delivery=ledger.delivery)
    bring_evidence(deliveries, ledger.delivery, own, vouched(events), owed(events))
    trusted = named_trust()
    return AttachedDelivery(ledger, plan, spec, path, spec_file, folder, tracking_uri, trusted, patience, key or "")


async def require_fleet(attached: AttachedDelivery) -> None:
    """A fleet on this machine must be up already: one that a step starts would end with the step.

    Raises:
        Refused: none is.
    """
    if isinstance(attached.spec.fleet, LocalFleet) and await running_host(attached.state.root) is None:
        raise Refused("no fleet runs here", hint="start it with `tidegate fleet up --detach`")


@dataclass(frozen=True)
class ResumeCredentials:
    """Who wants to carry on a delivery, and how they prove it."""

    by: str | None
    """A name, where the spec says that one is enough."""
    prover: Prover | None
    trusted: Trusted


def authorize_resume(credentials: ResumeCredentials, deliveries: Deliveries, delivery: str) -> Event | None:
    """The event that says who carries the delivery on, to be written once that is so; None when nobody said it.

    Raises:
        UsageError: they may not, by what the spec says and by who has asked for the delivery.
    """
    events = deliveries.events(delivery)
    spec = kept_spec(deliveries, delivery, events)
    identities = local_identities(credentials.trusted)
    requester = asyncio.run(AnswerVerifier(identities).requester(delivery, events))
    unproven = any((event.step, event.kind) == ("delivery", "requested") for event in events) and requester is None
    prover, now = credentials.prover, SystemClock().now()
    if prover is not None and credentials.by is not None:
        raise UsageError("--by is for a name without proof", hint="leave it out: the key or the token says who it is")
    proof: Proof | None = None
    person: Person | None = None
    if prover is not None:
        proof = prover.prove(_resume_statement(delivery, events))
        person = identities.verify(proof, now)
        if used_before(person, proof, first_uses(events)):
            raise UsageError(USED, hint="have a new one issued")
    refuse_heir(spec.resume, person, credentials.by, requester, unproven=unproven)
    if person is None and credentials.by is None:
        return None
    who = str(person) if person else f"{credentials.by} ({NAMED})"
    proven = {"proof": proof} if proof else {}
    resumed = DeliveryResumed(by=person.identity if person else credentials.by or "", **proven)
    return resumed.event(now, "delivery", who)


def _resume_statement(delivery: str, events: Sequence[Event]) -> str:
    """Of all that has happened until now: it cannot be repeated of what happens later."""
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
