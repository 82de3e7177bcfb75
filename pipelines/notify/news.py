"""Which events of a delivery are worth a message, and what it says. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pipelines.approvals import FREEZE, answering
from pipelines.model import Ending, Plan
from pipelines.payloads import Closing, Failure, Waiting
from pipelines.ports import Event
from pipelines.wording import ENDINGS
from tidegate.core.model import Value


class Kind(StrEnum):
    """What a message is about."""

    OPENED = "opened"
    """A delivery begins."""
    STOPPED = "stopped"
    """A step's gates said no, or time was over without a verdict; regions go back now."""
    APPROVAL = "approval"
    """A step waits for people, or goes on because they have said yes."""
    FREEZE = "freeze"
    """A step waits until nothing forbids it to change a region."""
    CLOSED = "closed"
    """The delivery is over, whichever way."""
    TEST = "test"
    """`tidegate notify` tries the address."""


VERDICTS = frozenset({Ending.ROLLED_BACK, Ending.INCONCLUSIVE})
"""Endings that a gate or its time decides; of the others people are told when the delivery is closed."""


class Subject(Value):
    """The delivery that is spoken of."""

    delivery: str
    model: str
    version: str
    champion: str
    regions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.model} {self.version}"


class News(Value):
    """One message."""

    kind: Kind
    at: datetime
    subject: Subject
    headline: str
    text: str = ""
    """A sentence more; empty when the headline says it all."""
    step: str | None = None
    outcome: str | None = None
    """How the delivery ended, or what a step makes of it."""


def subject_of(plan: Plan, delivery: str) -> Subject:
    """What is known once there is a plan."""
    return Subject(
        delivery=delivery,
        model=plan.version.name,
        version=plan.version.version,
        champion=plan.champion.version,
        regions=plan.regions,
    )


def news_of(event: Event, subject: Subject) -> News | None:
    """What to tell of an event; None for nearly all of them."""
    if event.step == "delivery":
        return _of_the_whole(event, subject)
    match event.kind:
        case "failed":
            return _stopped(event, subject)
        case "waiting":
            return _held(event, subject)
        case "allowed":
            headline = f"{subject} goes on: {event.message}"
            return News(kind=Kind.APPROVAL, at=event.at, subject=subject, headline=headline, step=event.step)
        case _:
            return None


def _of_the_whole(event: Event, subject: Subject) -> News | None:
    if event.kind == "started":
        headline = f"{subject} is on its way to {', '.join(subject.regions)}"
        text = f"The champion is version {subject.champion}."
        return News(kind=Kind.OPENED, at=event.at, subject=subject, headline=headline, text=text)
    if event.kind != "closed":
        return None
    closing = Closing.model_validate(event.data)
    headline = f"{subject} {ENDINGS.get(closing.outcome, closing.outcome)}"
    text = closing.reason or event.message
    return News(kind=Kind.CLOSED, at=event.at, subject=subject, headline=headline, text=text, outcome=closing.outcome)


def _stopped(event: Event, subject: Subject) -> News | None:
    ending = Failure.model_validate(event.data).ending
    if ending not in VERDICTS:
        return None
    return News(
        kind=Kind.STOPPED,
        at=event.at,
        subject=subject,
        headline=f"{subject} is stopped in {event.step}",
        text=event.message,
        step=event.step,
        outcome=str(ending),
    )


def _held(event: Event, subject: Subject) -> News | None:
    waiting = Waiting.model_validate(event.data)
    names = waiting.evidence is None
    by = f" by {waiting.by}" if waiting.by else ""
    if waiting.approval is not None:
        kind, headline = Kind.APPROVAL, f"{subject} waits for an approval of {waiting.approval}{by}"
        text = f"{answering(subject.delivery, waiting.approval, names=names)}, or with `--refuse --reason TEXT`"
    elif waiting.frozen_until is not None:
        kind, headline = Kind.FREEZE, f"{subject} waits {event.message}"
        text = f"{answering(subject.delivery, FREEZE, names=names)}{by} lets it go on all the same"
    else:
        return None
    return News(kind=kind, at=event.at, subject=subject, headline=headline, text=text, step=event.step)
