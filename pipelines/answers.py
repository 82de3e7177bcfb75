"""Whose answers count, and whether they are enough. Pure: who somebody is was proven before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from pydantic import AwareDatetime

from pipelines.approval_spec import NAMES, ProvenBy, WhoMay
from pipelines.identity.model import NAMED, Person, Statement, utc
from pipelines.payloads import Answer, Waiting
from pipelines.ports import Event
from tidegate.core.model import Value

SKEW = timedelta(minutes=1)
"""By how much the clocks of people and of deliveries may differ."""
WORDS = {"approved": "approve", "refused": "refuse", "requested": "request", "resumed": "resume"}
"""What a statement must say, by the kind of the event that carries it."""


class Terms(Value):
    """Who may answer, and how many of them it takes."""

    by: WhoMay
    not_the_requester: bool = False

    @property
    def count(self) -> int:
        """How many people."""
        return self.by.count if isinstance(self.by, ProvenBy) else 1

    def __str__(self) -> str:
        but = ", not whoever asked for the delivery" if self.not_the_requester else ""
        return f"{'anybody who gives a name' if self.by == NAMES else self.by}{but}"


class Question(Value):
    """What is asked, of whom, and what an answer to it must name."""

    name: str
    terms: tuple[Terms, ...]
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


class Heard(Value):
    """An answer that counts."""

    person: Person
    proven: bool
    approves: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.person}: {self.reason}" if self.reason else str(self.person)


class Ignored(Value):
    """An answer that does not count."""

    key: str
    by: str
    why: str


class Tally(Value):
    """What all the answers come to."""

    heard: tuple[Heard, ...]
    """Of each person the last word."""
    ignored: tuple[Ignored, ...]
    enough: bool

    @property
    def refusal(self) -> Heard | None:
        """One is enough."""
        return next((each for each in self.heard if not each.approves), None)

    @property
    def approvals(self) -> tuple[Heard, ...]:
        """Who has said yes."""
        return tuple(each for each in self.heard if each.approves)


def answers_to(events: Iterable[Event], asked: str) -> Sequence[Event]:
    """Everything that was said to that, oldest first."""
    return [event for event in events if event.step == asked and event.kind in ("approved", "refused")]


def key_of(event: Event) -> str:
    """By what one answer is told from another."""
    return f"{event.at.isoformat()} {event.kind} {Answer.model_validate(event.data).by}"


def not_of(question: Question, statement: Statement, event: Event) -> str | None:
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


def named(question: Question, event: Event) -> Heard | str:
    """What a name alone comes to."""
    answer = Answer.model_validate(event.data)
    if not any(each.by == NAMES for each in question.terms):
        return "a name alone is no approval here"
    if question.since is not None and event.at < question.since:
        return "it was said before this was asked"
    by = answer.by or event.message
    return Heard(
        person=Person(identity=by, how=NAMED), proven=False, approves=event.kind == "approved", reason=answer.reason
    )


def weighed(question: Question, heard: Heard, requester: Person | None) -> str | None:
    """Why somebody's word does not count; None when it does. A refusal counts from whoever may approve."""
    objections = [objection_to(terms, heard, requester) for terms in question.terms]
    return None if None in objections else objections[0]


def tally(question: Question, heard: Iterable[Heard], ignored: Iterable[Ignored], requester: Person | None) -> Tally:
    """Count: of each person the last word, and each person once."""
    last: dict[str, Heard] = {}
    for each in heard:
        last[each.person.identity.casefold()] = each
    counted = tuple(last.values())
    enough = all(
        sum(each.approves and objection_to(terms, each, requester) is None for each in counted) >= terms.count
        for terms in question.terms
    )
    return Tally(heard=counted, ignored=tuple(ignored), enough=enough)


def asked_at(events: Iterable[Event], question: Question) -> datetime | None:
    """When that was first asked with this evidence, perhaps by a process before this one."""
    evidence = None if question.names else question.evidence
    waiting = ((event.at, Waiting.model_validate(event.data)) for event in events if event.kind == "waiting")
    return next((at for at, said in waiting if (said.approval, said.evidence) == (question.name, evidence)), None)


def same(one: Person, other: Person) -> bool:
    """Whether they are the same person."""
    return one.identity.casefold() == other.identity.casefold()


def objection_to(terms: Terms, heard: Heard, requester: Person | None) -> str | None:
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


def _own(heard: Heard, requester: Person | None) -> str | None:
    if requester is None:
        return "it is not proven who asked for the delivery, so that nobody is known to be another person"
    return "who asked for the delivery does not count" if same(heard.person, requester) else None
