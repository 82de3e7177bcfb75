"""Who has asked for, approved or resumed a delivery: proofs in the ledger are checked, and answers counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from pipelines.authority.approvals import (
    WORDS,
    ApprovalQuestion,
    ApprovalRule,
    IgnoredAnswer,
    Tally,
    ValidAnswer,
    answers_to,
    key_of,
    ledger_digest,
    named,
    not_of,
    objection_to,
    plan_digest,
    same,
    tally,
    weighed,
)
from pipelines.events.history import plan_of
from pipelines.events.payloads import DeliveryRequested, PersonAnswer
from pipelines.spec.approvals import NAMES, ProvenBy, ResumeSpec, WhoMay
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import ApproversSpec
from pipelines.statements import (
    REQUEST,
    RESUME,
    Identities,
    Person,
    Proof,
    Prover,
    Statement,
    Unproven,
    read_statement,
)
from registry.model import Event
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.threads import call_in_thread

USED = "its token was used for another answer before"
MEANWHILE = 8
"""Events of others, such as an approval, that may come between a resumption's signature and its event."""


def first_uses(events: Iterable[Event]) -> Mapping[str, str]:
    """The statement that each credential stood next to first, whatever was asked: it can be read in the ledger."""
    used: dict[str, str] = {}
    for event in events:
        if event.kind in WORDS and (proof := PersonAnswer.of(event).proof) is not None:
            used.setdefault(proof.claim, proof.statement)
    return used


def used_before(person: Person, proof: Proof, used: Mapping[str, str]) -> bool:
    """Whether what proves somebody counts once, and has proven something else already."""
    return person.once and used.get(proof.claim, proof.statement) != proof.statement


class AnswerVerifier:
    """Checks the proof of each answer in the ledger: an event alone proves nothing, since anybody may write one."""

    def __init__(self, identities: Identities) -> None:
        """What was checked once is not checked again; `identities` runs in threads."""
        self._identities = identities
        self._checked: dict[str, Person | str] = {}

    async def answers(self, question: ApprovalQuestion, events: Sequence[Event]) -> Tally:
        """What all that was said comes to, by now."""
        asker = None if question.names else await self.requester(question.delivery, events)
        heard: list[ValidAnswer] = []
        ignored: list[IgnoredAnswer] = []
        used = first_uses(events)
        for event in answers_to(events, question.name):
            found = await self.answer(question, event, asker, used)
            if isinstance(found, ValidAnswer):
                heard.append(found)
            else:
                by = PersonAnswer.of(event).by
                ignored.append(IgnoredAnswer(key=key_of(event), by=by or "somebody", why=found))
        return tally(question, heard, ignored, asker)

    async def answer(
        self, question: ApprovalQuestion, event: Event, asker: Person | None, used: Mapping[str, str]
    ) -> ValidAnswer | str:
        """One answer, or why it does not count.

        Args:
            question: what it should be an answer to.
            event: as it stands in the ledger.
            asker: who asked for the delivery, where that is proven.
            used: for what each credential was used first, as `first_uses` says.
        """
        answer = PersonAnswer.of(event)
        if answer.proof is None:
            return named(question, event)
        try:
            statement = read_statement(answer.proof)
        except Unproven as error:
            return str(error)
        amiss = not_of(question, statement, event)
        person = amiss or await self._person(event)
        if isinstance(person, str):
            return person
        if used_before(person, answer.proof, used):
            return USED
        heard = ValidAnswer(person=person, proven=True, approves=event.kind == "approved", reason=statement.reason)
        return weighed(question, heard, asker) or heard

    async def requester(self, delivery: str, events: Sequence[Event]) -> Person | None:
        """Who asked for the delivery; None where that is not proven."""
        said = [event for event in events if (event.step, event.kind) == ("delivery", "requested")]
        if not said:
            return None
        plan = plan_digest(events)
        asked = ApprovalQuestion(name=REQUEST, terms=(), delivery=delivery, plan=plan, evidence=plan, since=None)
        answer = PersonAnswer.model_validate(said[0].data)
        try:
            amiss = answer.proof is None or not_of(asked, read_statement(answer.proof), said[0])
        except Unproven:
            return None
        person = None if amiss else await self._person(said[0])
        return person if isinstance(person, Person) else None

    async def heir(self, delivery: str, events: Sequence[Event], at: int) -> Person | str:
        """Who carried the delivery on with the event at that place, or why that is not proven; empty for a name alone.

        Raises:
            OutsideError: it cannot be checked now.
        """
        event, plan = events[at], plan_digest(events)
        proof = PersonAnswer.of(event).proof
        if proof is None:
            return ""
        try:
            statement = read_statement(proof)
            amiss: str | None = None
            for until in range(at, max(at - MEANWHILE, 0), -1):
                # What was signed for an earlier resumption has no place after it.
                if until < at and events[until].kind == "resumed":
                    break
                evidence = ledger_digest(events[:until])
                asked = ApprovalQuestion(
                    name=RESUME, terms=(), delivery=delivery, plan=plan, evidence=evidence, since=None
                )
                amiss = not_of(asked, statement, event)
                if amiss is None:
                    person = await call_in_thread(self._identities.verify, proof, event.at)
                    return USED if used_before(person, proof, first_uses(events)) else person
        except Unproven as error:
            return str(error)
        return amiss or "it was signed for nothing that happened"

    async def _person(self, event: Event) -> Person | str:
        proof = PersonAnswer.of(event).proof
        assert proof is not None, "only a proof says who somebody is"
        key = f"{event.at.isoformat()} {proof.model_dump_json()}"
        known = self._checked.get(key)
        if known is not None:
            return known
        try:
            person: Person | str = await call_in_thread(self._identities.verify, proof, event.at)
        except Unproven as error:
            person = str(error)
        except OutsideError as error:
            # Perhaps at the next look.
            return f"it cannot be checked now: {error}"
        self._checked[key] = person
        return person


def request_of(
    delivery: str,
    events: Sequence[Event],
    prover: Prover,
    identities: Identities,
    now: datetime,
    *,
    refuse: Callable[[Person], None],
) -> Event:
    """The event that says who asks for a delivery that was just opened, with what proves it.

    `refuse` says no to somebody for whom the delivery would wait in vain.

    Raises:
        UsageError: it cannot be proven, or they may not ask for it.
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
    refuse(person)
    return DeliveryRequested(by=person.identity, proof=proof).event(now, "delivery", str(person))


def refuse_unanswerable(spec: Delivery, approvers: ApproversSpec, *, requester_known: bool) -> None:
    """Say no to a delivery that would wait in vain: nobody could prove that they may approve it.

    Raises:
        UsageError: the first approval that nobody could give, and what to write.
    """
    for at, approval in enumerate(spec.approvals):
        terms = ApprovalRule(by=approval.by, not_the_requester=approval.not_the_requester)
        for field, found, hint in _amiss(terms, approvers, requester_known=requester_known):
            raise UsageError(f"approvals[{at}].{field}: {found}", hint=hint)


def refuse_too_few_others(spec: Delivery, approvers: ApproversSpec, requester: Person) -> None:
    """Say no to a delivery that would wait in vain: without the one who asks for it, too few people may approve it.

    Raises:
        UsageError: the first approval that too few others could give, and what to do.
    """
    if _issuers_tell_groups(approvers):
        return
    for at, approval in enumerate(spec.approvals):
        by = approval.by
        if not (approval.not_the_requester and isinstance(by, ProvenBy) and by.groups):
            continue
        people, asker = _people_of(by, approvers), requester.identity.casefold()
        others = people - {asker}
        # Of the others `refuse_unanswerable` has said whether they are enough.
        if asker in people and len(others) < by.count:
            raise UsageError(
                f"approvals[{at}].by.count: {by.count} of {' or '.join(by.groups)}, "
                f"who are {len(others)} without {requester.identity}, who asks",
                hint="have somebody else ask for the delivery, name more people, or ask for fewer",
            )


def _issuers_tell_groups(approvers: ApproversSpec) -> bool:
    """Whether people may be of a group without standing in the trust file."""
    return any(issuer.groups_claim for issuer in approvers.oidc)


def _people_of(by: ProvenBy, approvers: ApproversSpec) -> set[str]:
    """Those of its groups that the trust file names, each once."""
    return {approvers.person(name).casefold() for group in by.groups for name in approvers.groups.get(group, ())}


def _amiss(terms: ApprovalRule, approvers: ApproversSpec, *, requester_known: bool) -> Iterator[tuple[str, str, str]]:
    by: WhoMay = terms.by
    if not isinstance(by, ProvenBy):
        return
    if not approvers.anybody:
        hint = "name `approvers` in trust.yaml, or write `by: names` where a name without proof is enough"
        yield "by", "nobody can prove who they are", hint
    told = _issuers_tell_groups(approvers)
    unknown = [group for group in by.groups if group not in approvers.groups]
    if unknown and not told:
        yield "by.groups", f"{unknown[0]} is no group of trust.yaml", "name its people in `approvers.groups` there"
    people = _people_of(by, approvers)
    if by.groups and not told and len(people) < by.count:
        yield "by.count", f"{by.count} of {' or '.join(by.groups)}, who are {len(people)}", "ask for fewer"
    if terms.not_the_requester and not requester_known:
        hint = "prove who asks for the delivery: --identity"
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
    hint = "prove who you are: --identity"
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
            raise UsageError(
                "resuming this delivery takes a name or a proof of who you are",
                hint="give --by NAME, or prove who you are",
            )
        return
    if person is None:
        raise UsageError(f"the one who resumes this delivery must be {spec.by}", hint=hint)
    heard = ValidAnswer(person=person, proven=True, approves=True, reason="")
    objection = objection_to(ApprovalRule(by=spec.by), heard, None)
    if objection:
        raise UsageError(f"the one who resumes this delivery must be {spec.by}: {objection}", hint="ask one who is")


REQUESTED_BY = "TIDEGATE_REQUESTED_BY"
"""Set by the one who starts the command for somebody else; `tidegate serve` sets it."""
BY_ALIAS = "alias moved, unknown"
"""MLflow does not say who moved an alias."""

CI = (
    ("GITHUB_ACTOR", "GITHUB_RUN_ID", "GitHub"),
    ("GITLAB_USER_LOGIN", "CI_JOB_ID", "GitLab"),
    ("BUILD_USER_ID", "BUILD_TAG", "Jenkins"),
)
"""The variables that name a person and a run, for each kind of CI."""


def who_asks(environment: Mapping[str, str], *, user: str, host: str) -> str:
    """A person, and the run of CI or the machine, as one line: `ann, GitHub run 17`, `ann@laptop`."""
    if said := environment.get(REQUESTED_BY):
        return said
    for person, run, kind in CI:
        if environment.get(person):
            return f"{environment[person]}, {kind} run {environment.get(run, 'unknown')}"
    return f"{user}@{host}"
