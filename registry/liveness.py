"""Which deliveries are alive, and which of two that open at once may go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from registry.model import DeliverySummary

LIVE_SECONDS = 60.0
"""A delivery whose heartbeat is older is dead. A process beats every 10 s, and with every event."""


def is_alive(delivery: DeliverySummary, now: datetime, host: str, process_exists: Callable[[int], bool]) -> bool:
    """Whether an unfinished delivery's process may still act.

    On its own host the process table knows at once; elsewhere only its heartbeat tells. Of a delivery that many
    processes carry the last may well be gone and the next not there yet: it is given the time it asked for.
    """
    if delivery.patience_seconds:
        return now - delivery.heartbeat < timedelta(seconds=delivery.patience_seconds)
    if delivery.host == host and not process_exists(delivery.pid):
        return False
    return now - delivery.heartbeat < timedelta(seconds=LIVE_SECONDS)


def why_dead(delivery: DeliverySummary) -> str:
    """The reason to write when a dead delivery is closed."""
    if delivery.patience_seconds:
        return f"nobody went on with it; its last sign of life was {delivery.heartbeat:%F %T} UTC"
    return f"process {delivery.pid} on {delivery.host} died; its last sign of life was {delivery.heartbeat:%F %T} UTC"


def contest(mine: DeliverySummary, others: Iterable[tuple[DeliverySummary, bool]]) -> DeliverySummary | None:
    """The delivery that `mine` must make way for now; None when it need not.

    `others` are the live deliveries with whether each has won its own contest already. Everyone writes first
    and looks second, so of two at least the later one sees the other. The younger always makes way; the older
    makes way only for a winner, and otherwise waits until the younger has withdrawn or won.
    """
    for other, has_won in others:
        if has_won or _age(other) < _age(mine):
            return other
    return None


def _age(delivery: DeliverySummary) -> tuple[datetime, str]:
    return delivery.started, delivery.id
