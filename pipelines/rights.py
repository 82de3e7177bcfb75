"""Who asks for a delivery, and who may carry it on: said and proven, so that nobody approves their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from pipelines.answers import Heard, Terms, objection_to, same
from pipelines.approval_spec import NAMES, ProvenBy, ResumeSpec, WhoMay
from pipelines.identity.bound import plan_digest
from pipelines.identity.model import REQUEST, Person, Statement
from pipelines.identity.ports import Identities, Prover
from pipelines.identity.spec import ApproversSpec
from pipelines.ports import Event
from pipelines.recorded import plan_of
from pipelines.spec import Delivery
from tidegate.core.errors import UsageError


def request_of(delivery: str, events: Sequence[Event], prover: Prover, identities: Identities, now: datetime) -> Event:
    """The event that says who asks for a delivery that was just opened, with what proves it.

    Raises:
        UsageError: it cannot be proven.
    """
    digest, version = plan_digest(events), plan_of(events).version
    statement = Statement(
        says="request",
        question=REQUEST,
        delivery=delivery,
        model=version.name,
        version=version.version,
        plan=digest,
        evidence=digest,
        at=now,
    )
    proof = prover.prove(statement.text)
    person = identities.verify(proof, now)
    data = {"by": person.identity, "proof": proof.model_dump()}
    return Event(at=now, step="delivery", kind="requested", message=str(person), data=data)


def refuse_unanswerable(spec: Delivery, approvers: ApproversSpec, *, requester_known: bool) -> None:
    """Say no to a delivery that would wait in vain: nobody could prove that they may approve it.

    Raises:
        UsageError: the first approval that nobody could give, and what to write.
    """
    for at, approval in enumerate(spec.approvals):
        terms = Terms(by=approval.by, not_the_requester=approval.not_the_requester)
        for field, found, hint in _amiss(terms, approvers, requester_known=requester_known):
            raise UsageError(f"approvals[{at}].{field}: {found}", hint=hint)


def _amiss(terms: Terms, approvers: ApproversSpec, *, requester_known: bool) -> Iterator[tuple[str, str, str]]:
    by: WhoMay = terms.by
    if not isinstance(by, ProvenBy):
        return
    if not approvers.anybody:
        hint = "name `approvers` in trust.yaml, or write `by: names` where a name without proof is enough"
        yield "by", "nobody can prove who they are", hint
    told = any(issuer.groups_claim for issuer in approvers.oidc)
    unknown = [group for group in by.groups if group not in approvers.groups]
    if unknown and not told:
        yield "by.groups", f"{unknown[0]} is no group of trust.yaml", "name its people in `approvers.groups` there"
    people = {approvers.person(name).casefold() for group in by.groups for name in approvers.groups.get(group, ())}
    if by.groups and not told and len(people) < by.count:
        yield "by.count", f"{by.count} of {' or '.join(by.groups)}, who are {len(people)}", "ask for fewer"
    if terms.not_the_requester and not requester_known:
        hint = "prove who asks for the delivery: --ssh-key FILE, or an OIDC token"
        yield "not_the_requester", "it is not known who asks", hint


def refuse_heir(
    spec: ResumeSpec | None, person: Person | None, by: str | None, requester: Person | None, *, unproven: bool
) -> None:
    """Say no to somebody who may not carry on a delivery that somebody else has asked for.

    Args:
        spec: `resume`, as the spec has it.
        person: who wants to, where that is proven.
        by: what they call themselves otherwise.
        requester: who has asked for the delivery, where that is proven.
        unproven: whether somebody has said so, and it could not be proven.

    Raises:
        UsageError: they may not; says what would do.
    """
    if person is not None and requester is not None and same(person, requester):
        return
    hint = "prove who you are: --ssh-key FILE, or an OIDC token"
    if spec is None:
        if requester is None and not unproven:
            return
        who = str(requester) if requester else "somebody who cannot be checked here"
        more = "; or have the spec say who else may, as in `resume: {by: {groups: [on-call]}}`"
        raise UsageError(
            f"{who} has asked for this delivery, and the spec lets nobody else resume it", hint=hint + more
        )
    if spec.by == NAMES:
        if person is None and by is None:
            raise UsageError("who carries it on?", hint="give --by NAME, or prove who you are")
        return
    if person is None:
        raise UsageError(f"whoever resumes this delivery must be {spec.by}", hint=hint)
    heard = Heard(person=person, proven=True, approves=True, reason="")
    objection = objection_to(Terms(by=spec.by), heard, None)
    if objection:
        raise UsageError(f"whoever resumes this delivery must be {spec.by}: {objection}")
