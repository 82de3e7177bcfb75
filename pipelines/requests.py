"""Delivery requests: what somebody wants delivered, which is next, and which have expired. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from registry.model import DeliverySummary
from tidegate.core.model import Value

EVER = datetime.min.replace(tzinfo=UTC)
"""Timestamp of a version of which nobody knows when it got the alias."""


class DeliveryRequest(Value):
    """A model version that somebody wants delivered: it carries the alias.

    Two events with the same three names are one request, for as long as it does.
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
    """A delivery request in the queue, and what became of it."""

    number: int
    """In the order of arrival."""
    request: DeliveryRequest
    since: datetime
    """The alias was set shortly before this at the earliest; deliveries that are older do not fulfil it."""
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
once, webhooks take time, and clocks differ."""


def lapsed(entries: Iterable[QueuedRequest], marked: str | None, looked: datetime) -> list[QueuedRequest]:
    """Requests whose alias is gone: setting it again is a new request, and a queued one is withdrawn.

    A delivery that runs keeps its request.

    Args:
        entries: all of one model and alias that count as standing.
        marked: the version that carries the alias.
        looked: when the registry was asked; it cannot have shown what was set later.
    """
    gone = [entry for entry in entries if entry.request.version != marked and entry.since < looked]
    return [entry for entry in gone if entry.state is not RequestState.STARTED]


def answer(
    entry: QueuedRequest, deliveries: Iterable[DeliverySummary], alive: Collection[str]
) -> DeliverySummary | None:
    """The delivery that fulfils the request, no matter who started it; None when there is none yet.

    `deliveries` are of the model, newest first.
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
