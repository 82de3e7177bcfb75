"""Delivery requests: what somebody wants delivered, and which have expired. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from registry.model import DeliverySummary
from tidegate.core.model import Value

EVER = datetime.min.replace(tzinfo=UTC)
"""Timestamp of a candidate whose tagging time is unknown."""


class DeliveryRequest(Value):
    """A model version that somebody wants delivered: it carries the alias.

    It is one request for as long as the version carries the alias.
    """

    model: str
    version: str
    """Its number in MLflow, as text."""
    alias: str
    """What deliveries of the model begin with: `model.from` of the spec."""

    def __str__(self) -> str:
        return f"models:/{self.model}/{self.version}@{self.alias}"


class RequestState(StrEnum):
    """Where a delivery request stands."""

    QUEUED = "queued"
    STARTED = "started"
    OVER = "over"
    """There was a delivery, or every attempt to start one failed."""
    WITHDRAWN = "withdrawn"
    """The version lost its alias before anything was started."""


class QueuedRequest(Value):
    """A delivery request in the log, and what became of it."""

    number: int
    """In the order of arrival."""
    request: DeliveryRequest
    since: datetime
    """The alias was set after this; deliveries that are older do not fulfil it."""
    standing: bool = True
    """Whether the version has carried the alias ever since; set again later it is a new request."""
    state: RequestState = RequestState.QUEUED
    tries: int = 0
    not_before: datetime = EVER
    """Earliest time of the next attempt."""
    run: str | None = None
    """What was started for it, as the starter named it: a process, a workflow."""
    delivery: str | None = None
    """Its delivery's id, once the ledger has it."""
    note: str = ""
    """One line for people."""


TRIES = 3
"""Start attempts for a request before it is marked as over."""
PAUSE = timedelta(seconds=30)
"""Pause after the first failed attempt; it doubles with each further one."""

SLACK = timedelta(seconds=30)
"""How much earlier than its request a delivery may begin and still fulfil it: the one who sets an alias may deliver at
once, and clocks differ."""
KEPT = 100
"""Requests that are remembered."""


class RequestLog(Value):
    """What the registry has shown, one alias of a model at a time."""

    looked: datetime | None = None
    """When it was asked last; None before the first time."""
    entries: tuple[QueuedRequest, ...] = ()
    """Oldest first."""

    def after_look(self, marked: DeliveryRequest | None, looked: datetime) -> RequestLog:
        """The log once the registry has shown who carries the alias, if anybody.

        What is queued without it is withdrawn; a delivery that runs keeps its request.
        """
        entries = [entry if entry.request == marked else _without_alias(entry) for entry in self.entries]
        if marked and not any(entry.standing and entry.request == marked for entry in entries):
            # Not there when it was looked last: it is younger than that.
            number = entries[-1].number + 1 if entries else 1
            entries.append(QueuedRequest(number=number, request=marked, since=self.looked or EVER))
        return RequestLog(looked=looked, entries=tuple(entries[-KEPT:]))

    def updated(self, entry: QueuedRequest) -> RequestLog:
        """With what became of a request."""
        entries = tuple(entry if each.number == entry.number else each for each in self.entries)
        return self.model_copy(update={"entries": entries})

    def standing(self, *states: RequestState) -> list[QueuedRequest]:
        """Those that stand, in one of these states."""
        return [entry for entry in self.entries if entry.standing and entry.state in states]


def _without_alias(entry: QueuedRequest) -> QueuedRequest:
    if not entry.standing or entry.state is RequestState.STARTED:
        return entry
    state = RequestState.WITHDRAWN if entry.state is RequestState.QUEUED else entry.state
    return entry.model_copy(update={"state": state, "standing": False})


def answer(
    entry: QueuedRequest, deliveries: Iterable[DeliverySummary], alive: Collection[str]
) -> DeliverySummary | None:
    """The delivery that fulfils the request, no matter who started it; None when there is none yet.

    Args:
        entry: the request.
        deliveries: of the model, newest first.
        alive: the ids of those that run.
    """
    of_version = [delivery for delivery in deliveries if delivery.version == entry.request.version]
    return next((each for each in of_version if each.id in alive or entry.since - each.started <= SLACK), None)


def after_failed_attempt(entry: QueuedRequest, now: datetime) -> QueuedRequest:
    """The entry whose process or workflow ended without a delivery in the ledger."""
    if entry.tries == 0:
        # Somebody else's delivery answered it for a moment, and was withdrawn before it began.
        return entry.model_copy(
            update={"state": RequestState.QUEUED, "delivery": None, "note": "the delivery was withdrawn"}
        )
    if entry.tries >= TRIES:
        return entry.model_copy(
            update={"state": RequestState.OVER, "note": f"given up: {entry.tries} tries, no delivery"}
        )
    pause = PAUSE * 2 ** max(0, entry.tries - 1)
    note = f"try {entry.tries} ended without a delivery"
    return entry.model_copy(update={"state": RequestState.QUEUED, "not_before": now + pause, "note": note})
