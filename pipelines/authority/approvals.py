"""What people must approve, whose answers count, whether they are enough, and which freeze holds. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime

from pipelines.events.history import before, done_steps
from pipelines.events.payloads import PersonAnswer, Waiting
from pipelines.model import Plan, PlanStep, StageName
from pipelines.plan.approvals import asked_before
from pipelines.spec.approvals import NAMES, ApprovalSpec, FreezeSpec, ProvenBy, WhoMay
from pipelines.statements import NAMED, Person, Statement, utc
from registry.model import Event
from tidegate.core.errors import Refused, UsageError
from tidegate.core.model import Value

FROZEN = frozenset({StageName.DEPLOY, StageName.SHADOW, StageName.CANARY, StageName.PROMOTE})
"""What a freeze holds: whatever changes a region. A bake goes on, since it only looks."""


def plan_digest(events: Iterable[Event]) -> str:
    """Of the plan as the delivery was opened with it, versions and files' digests included."""
    opened = [event for event in events if (event.step, event.kind) == ("delivery", "started")]
    return _digest([dict(opened[0].data) if opened else None])


def evidence_digest(plan: Plan, asked: str, events: Iterable[Event]) -> str:
    """Of every verdict of the steps before what is asked: in its region and in all waves before."""
    first = next(step for step in plan.steps if asked in step.approvals)
    earlier = {step.id for step in before(plan, first)}
    return _digest([_content(event) for event in events if event.kind == "verdict" and event.step in earlier])


def freeze_digest(until: datetime, reason: str) -> str:
    """Of one freeze: the one who lifts it lifts no other."""
    return _digest([until.astimezone(UTC).isoformat(), reason])


def ledger_digest(events: Iterable[Event]) -> str:
    """Of all that has happened so far: what is said of it counts once, before anything else is written."""
    return _digest([_content(event) for event in events])


def _content(event: Event) -> Sequence[object]:
    return event.at.astimezone(UTC).isoformat(), event.step, event.kind, event.message, dict(event.data)


def _digest(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()


SKEW = timedelta(minutes=1)
"""By how much the clocks of people and of deliveries may differ."""
WORDS = {"approved": "approve", "refused": "refuse", "requested": "request", "resumed": "resume"}
"""What a statement must say, by the kind of the event that carries it."""


class ApprovalRule(Value):
    """Who may answer, and how many of them it takes."""

    by: WhoMay
    not_the_requester: bool = False

    @property
    def count(self) -> int:
        """How many people."""
        return self.by.count if isinstance(self.by, ProvenBy) else 1

    def __str__(self) -> str:
        but = ", not the one who asked for the delivery" if self.not_the_requester else ""
        return f"{'anybody who gives a name' if self.by == NAMES else self.by}{but}"


class ApprovalQuestion(Value):
    """What is asked, of whom, and what an answer to it must name."""

    name: str
    terms: tuple[ApprovalRule, ...]
    """All of them must be met."""
    delivery: str
    plan: str
    evidence: str
    since: AwareDatetime | None
    """When it was asked; what was said before that was said of something else. None counts whatever was said."""

    @property
    def names(self) -> bool:
        """Whether a name is enough for all of it."""
        return all(each.by == NAMES for each in self.terms)

    def asked_of(self) -> str:
        """Who is asked, in words."""
        return " and ".join(dict.fromkeys(map(str, self.terms)))


class ValidAnswer(Value):
    """An answer that counts."""

    person: Person
    proven: bool
    approves: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.person}: {self.reason}" if self.reason else str(self.person)


class IgnoredAnswer(Value):
    """An answer that does not count."""

    key: str
    by: str
    why: str


class Tally(Value):
    """What all the answers come to."""

    heard: tuple[ValidAnswer, ...]
    """Of each person the last word."""
    ignored: tuple[IgnoredAnswer, ...]
    enough: bool

    @property
    def refusal(self) -> ValidAnswer | None:
        """One is enough."""
        return next((each for each in self.heard if not each.approves), None)

    @property
    def approvals(self) -> tuple[ValidAnswer, ...]:
        """Who has said yes."""
        return tuple(each for each in self.heard if each.approves)


def answers_to(events: Iterable[Event], asked: str) -> Sequence[Event]:
    """Everything that was said to that, oldest first."""
    return [event for event in events if event.step == asked and event.kind in ("approved", "refused")]


def key_of(event: Event) -> str:
    """By what one answer is told from another."""
    return f"{event.at.isoformat()} {event.kind} {PersonAnswer.of(event).by}"


def not_of(question: ApprovalQuestion, statement: Statement, event: Event) -> str | None:
    """Why a statement is not an answer to this question; None when it is."""
    expected = (
        ("delivery", statement.delivery, question.delivery),
        ("question", statement.question, question.name),
        ("answer", statement.says, WORDS[event.kind]),
        ("plan", statement.plan, question.plan),
        ("evidence", statement.evidence, question.evidence),
    )
    for what, found, wanted in expected:
        if found != wanted:
            return f"it was signed for another {what}"
    if question.since is not None and statement.at < question.since - SKEW:
        return f"it was signed at {utc(statement.at)}, before it was asked"
    if statement.at > event.at + SKEW:
        return f"it was signed for {utc(statement.at)}, which was still to come"
    return None


def named(question: ApprovalQuestion, event: Event) -> ValidAnswer | str:
    """What a name alone comes to."""
    answer = PersonAnswer.of(event)
    if not any(each.by == NAMES for each in question.terms):
        return "a name alone is no approval here"
    if question.since is not None and event.at < question.since:
        return "it was said before this was asked"
    by = answer.by or event.message
    return ValidAnswer(
        person=Person(identity=by, how=NAMED), proven=False, approves=event.kind == "approved", reason=answer.reason
    )


def weighed(question: ApprovalQuestion, heard: ValidAnswer, requester: Person | None) -> str | None:
    """Why somebody's word does not count; None when it does. A refusal counts from the one who may approve."""
    objections = [objection_to(terms, heard, requester) for terms in question.terms]
    return None if None in objections else objections[0]


def tally(
    question: ApprovalQuestion, heard: Iterable[ValidAnswer], ignored: Iterable[IgnoredAnswer], requester: Person | None
) -> Tally:
    """Count: of each person the last word, and each person once."""
    last: dict[str, ValidAnswer] = {}
    for each in heard:
        last[each.person.identity.casefold()] = each
    counted = tuple(last.values())
    enough = all(
        sum(each.approves and objection_to(terms, each, requester) is None for each in counted) >= terms.count
        for terms in question.terms
    )
    return Tally(heard=counted, ignored=tuple(ignored), enough=enough)


def asked_at(events: Iterable[Event], question: ApprovalQuestion) -> datetime | None:
    """When that was first asked with this evidence, perhaps by a process before this one."""
    evidence = None if question.names else question.evidence
    waiting = ((event.at, Waiting.of(event)) for event in events if event.kind == "waiting")
    return next((at for at, said in waiting if (said.approval, said.evidence) == (question.name, evidence)), None)


def same(one: Person, other: Person) -> bool:
    """Whether they are the same person."""
    return one.identity.casefold() == other.identity.casefold()


def objection_to(terms: ApprovalRule, heard: ValidAnswer, requester: Person | None) -> str | None:
    """Why somebody's word does not count by these terms; None when it does."""
    by, person = terms.by, heard.person
    if not isinstance(by, ProvenBy):
        return None
    if not heard.proven:
        return "a name alone is no approval here"
    if by.groups and not person.groups & set(by.groups):
        return f"{person.identity} is not of {' or '.join(by.groups)}"
    if not by.groups and not person.listed:
        return f"{person.identity} is of no group of trust.yaml"
    return _own(heard, requester) if terms.not_the_requester and heard.approves else None


def _own(heard: ValidAnswer, requester: Person | None) -> str | None:
    if requester is None:
        return "it is not proven who asked for the delivery, so that nobody is known to be another person"
    return "who asked for the delivery does not count" if same(heard.person, requester) else None


FREEZE = "freeze"
"""What is approved when a delivery shall go on though a freeze holds."""


def answering(delivery: str, asked: str, *, names: bool) -> str:
    """The command by which a person approves; `names` is whether it is enough to give one."""
    return f"`tidegate approve {delivery} {asked} {'--by NAME' if names else '--identity ssh:FILE'}`"


def patience(approvals: Sequence[ApprovalSpec], asked: str, steps: Sequence[PlanStep]) -> timedelta:
    """How long to wait for that answer: of several entries that ask the same, the longest."""
    return max(each.within for each in approvals if any(asked_before(each, step, steps) == asked for step in steps))


def terms_of(approvals: Sequence[ApprovalSpec], asked: str, steps: Sequence[PlanStep]) -> tuple[ApprovalRule, ...]:
    """Who must have answered that: of several entries that ask the same, what each of them says."""
    return tuple(
        ApprovalRule(by=each.by, not_the_requester=each.not_the_requester)
        for each in approvals
        if any(asked_before(each, step, steps) == asked for step in steps)
    )


def refuse_useless(plan: Plan, events: Sequence[Event], asked: str) -> None:
    """Say no to an answer that changes nothing.

    Raises:
        UsageError: nobody asks for it; says what is asked for.
        Refused: everything that waits for it has begun.
    """
    waiting = [step for step in plan.steps if asked in step.approvals]
    if asked == FREEZE:
        return
    if not waiting:
        known = dict.fromkeys(name for step in plan.steps for name in step.approvals)
        raise UsageError(
            f"this delivery has no approval for `{asked}`",
            hint=f"it asks for: {', '.join(known) or 'nothing'}; or {FREEZE}",
        )
    done = done_steps(events)
    begun = done | {event.step for event in events if event.kind == "started"}
    if all(step.id in begun for step in waiting):
        raise Refused(f"{waiting[0].id} has begun already", hint="`tidegate rollback` rolls a delivery back")


class Frozen(Value):
    """A freeze that holds now."""

    since: datetime
    until: datetime
    reason: str
    terms: ApprovalRule
    """Who may let a delivery go on all the same."""

    def __str__(self) -> str:
        return f"until {self.until:%F %H:%M %Z}: frozen: {self.reason}"


def frozen(freezes: Iterable[FreezeSpec], now: datetime) -> Frozen | None:
    """The freeze that holds at `now`, of several the one that ends last; None when none does."""
    holding = [found for freeze in freezes if (found := _frozen(freeze, now))]
    return max(holding, key=lambda found: found.until, default=None)


def _frozen(freeze: FreezeSpec, now: datetime) -> Frozen | None:
    zone = ZoneInfo(freeze.timezone)
    start = freeze.start.last_before(now, zone)
    end = freeze.end.next_after(start, zone)
    if not start <= now < end:
        return None
    terms = ApprovalRule(by=freeze.lift, not_the_requester=freeze.not_the_requester)
    return Frozen(since=start, until=end, reason=freeze.reason, terms=terms)
