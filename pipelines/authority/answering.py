"""What people say to a delivery: who asks for it, that a step may begin or not, that they carry it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipelines.authority.approvals import (
    FREEZE,
    WORDS,
    Question,
    approval,
    lifting,
    refuse_useless,
    request,
    resumption,
)
from pipelines.events.payloads import PersonAnswer
from pipelines.events.state import plan_of
from pipelines.spec.approvals import ApprovalSpec, ProvenBy, ResumeSpec
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import ApproversSpec
from pipelines.statements import Person, Proof, Prover, Statement, Unproven, utc
from registry.model import Event, EventKind
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError, Refused, UsageError
from tidegate.core.model import Value
from tidegate.core.process import note

if TYPE_CHECKING:
    from pipelines.authority.identities import ProvenIdentities


class Answer(Value):
    """What somebody has said to a question."""

    key: str
    """By what one answer is told from another."""
    person: Person
    approves: bool
    reason: str
    ignored: str = ""
    """Why it does not count; empty when it does."""

    def __str__(self) -> str:
        return f"{self.person}: {self.reason}" if self.reason else str(self.person)


class Tally(Value):
    """What all the answers come to."""

    heard: tuple[Answer, ...]
    """Of each person the last word."""
    ignored: tuple[Answer, ...]
    enough: bool

    @property
    def refusal(self) -> Answer | None:
        """One is enough."""
        return next((each for each in self.heard if not each.approves), None)


class AnswerVerifier:
    """Checks the proof of each answer in the ledger: an event alone proves nothing, since anybody may write one.

    All of it blocks: proofs are checked by programs and by servers.
    """

    def __init__(self, identities: ProvenIdentities) -> None:
        """What was checked once is not checked again."""
        self.identities = identities
        self._checked: dict[str, Person | Unproven] = {}

    def tally(self, question: Question, events: Sequence[Event]) -> Tally:
        """Count all that was said by now: of each person the last word, and each person once."""
        requester = None if question.names else self.requester(question.delivery, events)
        last: dict[str, Answer] = {}
        ignored: list[Answer] = []
        for event in events:
            if event.step == question.name and event.kind in ("approved", "refused"):
                try:
                    said = self.answer(question, event, events)
                except OutsideError as error:
                    # Perhaps at the next look.
                    said = _said(event, f"it cannot be checked now: {error}")
                if said.ignored:
                    ignored.append(said)
                else:
                    last[said.person.identity.casefold()] = said
        enough = all(
            sum(each.approves and rule.objection(each.person, requester) is None for each in last.values())
            >= rule.count
            for rule in question.rules
        )
        return Tally(heard=tuple(last.values()), ignored=tuple(ignored), enough=enough)

    def answer(self, question: Question, event: Event, events: Sequence[Event]) -> Answer:
        """One answer, and whether it counts.

        `event` is as it stands in the ledger, or would; `events` say who asked for the delivery.

        Raises:
            OutsideError: it cannot be checked now.
        """
        proof = PersonAnswer.of(event).proof
        if proof is None:
            late = question.since is not None and event.at < question.since
            said = _said(event, "it was said before this was asked" if late else "")
        else:
            try:
                statement = proof.read()
                said = _said(event, question.misses(statement, event) or "")
                if not said.ignored:
                    said = said.model_copy(update={"person": self._person(event, proof), "reason": statement.reason})
            except Unproven as error:
                said = _said(event, str(error))
        if said.ignored or not question.rules:
            return said
        requester = None if question.names else self.requester(question.delivery, events)
        objections = [rule.objection(said.person, requester, approves=said.approves) for rule in question.rules]
        return said if None in objections else said.model_copy(update={"ignored": objections[0]})

    def requester(self, delivery: str, events: Sequence[Event]) -> Person | None:
        """Who asked for the delivery; None where that is not proven."""
        event = next((each for each in events if (each.step, each.kind) == ("delivery", "requested")), None)
        try:
            said = self.answer(request(delivery, events), event, events) if event else None
        except OutsideError:
            return None
        return said.person if said and said.person.proven and not said.ignored else None

    def _person(self, event: Event, proof: Proof) -> Person:
        key = f"{event.at.isoformat()} {proof.model_dump_json()}"
        if key not in self._checked:
            try:
                self._checked[key] = self.identities.verify(proof, event.at)
            except Unproven as error:
                self._checked[key] = error
        found = self._checked[key]
        if isinstance(found, Unproven):
            raise found
        return found

    def refuse_unproven_heir(self, spec: ResumeSpec | None, delivery: str, events: Sequence[Event]) -> None:
        """Go on where nobody has carried the delivery on, or the last who did may, by the spec and by their proof.

        Raises:
            UsageError: they may not, or have not proven it.
            OutsideError: it cannot be checked now.
        """
        resumed = [at for at, event in enumerate(events) if (event.step, event.kind) == ("delivery", "resumed")]
        if not resumed:
            return
        last, question = events[resumed[-1]], resumption(spec, delivery, events[: resumed[-1]])
        why = self.answer(question, last, events).ignored if question.rules else ""
        if why:
            raise UsageError(
                f"{last.message or 'somebody'} carried this delivery on at {utc(last.at)} and may not: {why}",
                hint=f"`tidegate resume` takes {question.asked_of}",
            )


def _said(event: Event, ignored: str) -> Answer:
    """By the event alone, which anybody may have written."""
    answer = PersonAnswer.of(event)
    return Answer(
        key=f"{event.at.isoformat()} {event.kind} {answer.by}",
        person=Person(identity=answer.by or event.message or "somebody", proven=False),
        approves=event.kind != "refused",
        reason=answer.reason,
        ignored=ignored,
    )


def refuse_unanswerable(approvals: Sequence[ApprovalSpec], approvers: ApproversSpec, *, asked: bool) -> None:
    """Say no to a delivery that would wait in vain, since nobody could prove that they may approve it.

    `asked` is whether somebody proves who asks for the delivery.

    Raises:
        UsageError: the first approval that nobody could give, and what to write.
    """
    for at, each in enumerate(approvals):
        by, where = each.by, f"approvals[{at}]"
        if not isinstance(by, ProvenBy):
            continue
        if not approvers.anybody:
            hint = "name `approvers` in trust.yaml, or write `by: names` where a name without proof is enough"
            raise UsageError(f"{where}.by: nobody can prove who they are", hint=hint)
        if each.not_the_requester and not asked:
            hint = "prove who asks for the delivery: --identity"
            raise UsageError(f"{where}.not_the_requester: it is not known who asks", hint=hint)
        # An issuer may say of anybody in the world that they are of a group.
        known = by.groups if any(issuer.groups_claim for issuer in approvers.oidc) else tuple(approvers.groups)
        if unknown := [group for group in by.groups if group not in known]:
            hint = "name its people in `approvers.groups` there"
            raise UsageError(f"{where}.by.groups: {unknown[0]} is no group of trust.yaml", hint=hint)


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


@dataclass(frozen=True)
class Speaker:
    """Who says something: by a name, or by what proves it.

    Raises:
        UsageError: by both.
    """

    by: str | None = None
    prover: Prover | None = None

    def __post_init__(self) -> None:
        if self.by is not None and self.prover is not None:
            hint = "leave it out: the key or the token says who it is"
            raise UsageError("--by is for a name without proof", hint=hint)


@dataclass(frozen=True)
class Hearing:
    """A delivery to which people speak: each method makes the event for its ledger, checked as it will be there.

    All of them raise UsageError where it would not count, or where nothing says who speaks.
    """

    spec: Delivery
    """As the delivery kept it."""
    delivery: str
    events: Sequence[Event]
    """All that its ledger has."""
    identities: ProvenIdentities
    clock: Clock

    def request(self, asker: Prover) -> Event:
        """Who asks for the delivery, which was just opened."""
        return self._said(EventKind.REQUESTED, request(self.delivery, self.events), Speaker(prover=asker))

    def resumption(self, speaker: Speaker) -> Event | None:
        """Who carries the delivery on; None when nobody says it, and nobody need.

        It speaks of all that has happened so far: it counts once, before anything else is written.
        """
        question = resumption(self.spec.resume, self.delivery, self.events)
        if speaker == Speaker() and not question.rules:
            return None
        return self._said(EventKind.RESUMED, question, speaker)

    def answer(self, asked: str, speaker: Speaker, *, reason: str = "", refuse: bool = False) -> Event:
        """An approval or a refusal of a step's id, `wave@2` or `freeze`.

        Raises:
            UsageError: nobody asks for it, or a refusal gives no reason.
            Refused: what waits for it has begun, or it is not asked yet.
        """
        if refuse and not reason:
            raise UsageError("a refusal needs a reason", hint="add --reason TEXT: it becomes the delivery's")
        plan = plan_of(self.events)
        refuse_useless(plan, self.events, asked)
        if asked != FREEZE:
            question = approval(self.spec, plan, self.delivery, self.events, asked)
        elif (lifted := lifting(self.spec, self.delivery, self.events, self.clock.now())) is not None:
            question = lifted
        else:
            hint = "an answer to a freeze counts for the one that holds, not for a later one"
            raise Refused("there is no freeze to lift now", hint=hint)
        if speaker.prover and question.since is None and not question.names:
            hint = "answer once it waits: what you decide on does not exist before"
            raise Refused(f"the delivery does not ask for {asked} yet", hint=hint)
        kind = EventKind.REFUSED if refuse else EventKind.APPROVED
        return self._said(kind, question, speaker, step=asked, reason=reason)

    def _said(
        self,
        kind: EventKind,
        question: Question,
        speaker: Speaker,
        step: str = "delivery",
        reason: str = "",
    ) -> Event:
        takes = f"{question.name} takes {question.asked_of}" if question.rules else None
        if speaker == Speaker():
            raise UsageError("nothing says who you are", hint=f"{takes}: give --identity, or --by NAME")
        data: dict[str, Any] = {"by": speaker.by or "", "reason": reason}
        if speaker.prover:
            version = plan_of(self.events).version
            statement = Statement(
                says=WORDS[kind],
                question=question.name,
                delivery=self.delivery,
                model=version.name,
                version=version.version,
                plan=question.plan,
                evidence=question.evidence,
                reason=reason,
                at=self.clock.now(),
            )
            data["proof"] = speaker.prover(statement.text)
            if step != "delivery" and not self.identities.approvers.anybody:
                note("there is no trust.yaml with `approvers` here; the step that waits checks who this was")
                message = f"not checked here: {reason}" if reason else "not checked here"
                return _event(kind, self.clock.now(), step, message, data)
        now = self.clock.now()
        said = AnswerVerifier(self.identities).answer(question, _event(kind, now, step, "", data), self.events)
        if said.ignored:
            raise UsageError(f"this would not count: {said.ignored}", hint=takes)
        return _event(kind, now, step, str(said), data | {"by": said.person.identity})


def _event(kind: EventKind, at: datetime, step: str, message: str, data: Mapping[str, Any]) -> Event:
    said = PersonAnswer.model_validate(data).model_dump(mode="json", exclude_unset=True)
    return Event(at=at, step=step, kind=kind, message=message, data=said)
