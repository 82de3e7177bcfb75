"""Which wish is next, which have had their time: decided of the inbox, the registry and the ledger as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from registry.model import DeliverySummary
from registry.triggers.model import Entry, State

TRIES = 3
"""So often something is started for a wish before it is given up that a delivery comes of it."""
PAUSE = timedelta(seconds=30)
"""After the first try in vain; twice as long after each further one."""

SLACK = timedelta(seconds=30)
"""By which a delivery may begin before we hear of the wish that it answers: who sets an alias may deliver at once, the
webhook takes its time, and clocks differ."""


class Policy(StrEnum):
    """What happens to wishes that arrive while a delivery of the model runs."""

    NEWEST = "newest"
    """The last one is delivered next, those before it never."""
    WAIT = "wait"
    """Each is delivered, in the order of arrival."""


def lapsed(entries: Iterable[Entry], marked: Collection[str], looked: datetime, policy: Policy) -> list[Entry]:
    """The entries whose mark is gone: setting it again is a new wish, and one that is still queued is withdrawn.

    A delivery that runs keeps its entry. So does a queued wish whose alias went on to the next version, when each is
    to be delivered in turn.

    Args:
        entries: all of one model and alias that count as standing.
        marked: numbers of the versions that carry a mark.
        looked: when the registry was asked; it cannot have shown marks that were set later.
        policy: of the queue.
    """
    gone = [entry for entry in entries if entry.wish.version not in marked and entry.since < looked]
    kept = {State.STARTED} | ({State.QUEUED} if policy is Policy.WAIT and marked else set())
    return [entry for entry in gone if entry.state not in kept]


def answer(entry: Entry, deliveries: Iterable[DeliverySummary], alive: Collection[str]) -> DeliverySummary | None:
    """The delivery that fulfils the wish, whoever started it; None when there is none yet.

    Args:
        entry: the wish.
        deliveries: of the model, newest first.
        alive: the ids of those that run.
    """
    of_version = [delivery for delivery in deliveries if delivery.version == entry.wish.version]
    return next((each for each in of_version if each.id in alive or entry.since - each.started <= SLACK), None)


def superseded(queued: Sequence[Entry], policy: Policy) -> Sequence[Entry]:
    """The queued entries of one model, oldest first, that a newer one overtakes."""
    return queued[:-1] if policy is Policy.NEWEST else ()


def next_of(queued: Sequence[Entry], now: datetime) -> Entry | None:
    """Whose turn it is; nobody's while the first of the line still pauses after a try in vain."""
    return queued[0] if queued and queued[0].not_before <= now else None


def after_a_try_in_vain(entry: Entry, now: datetime) -> Entry:
    """The entry whose process or workflow ended without a delivery in the ledger."""
    if entry.tries == 0:
        # Somebody else's delivery answered it for a moment, and was withdrawn before it began.
        return entry.model_copy(update={"state": State.QUEUED, "delivery": None, "note": "the delivery was withdrawn"})
    if entry.tries >= TRIES:
        return entry.model_copy(update={"state": State.OVER, "note": f"given up: {entry.tries} tries, no delivery"})
    pause = PAUSE * 2 ** max(0, entry.tries - 1)
    note = f"try {entry.tries} ended without a delivery"
    return entry.model_copy(update={"state": State.QUEUED, "not_before": now + pause, "note": note})
