"""One look at the ledger and the inbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelines.page.model import Look, Seen
from pipelines.page.ports import Ledgers
from pipelines.ports import Event
from pipelines.story import Story, tell
from registry.model import DeliverySummary
from registry.triggers.model import Entry, State
from tidegate.core.clock import Clock

LAST = 10
"""Deliveries that are shown."""


class Looker:
    """Remembers the stories of deliveries that are over, which nobody changes any more."""

    def __init__(self, model: str, ledgers: Ledgers, wishes: Callable[[], Sequence[Entry]], clock: Clock) -> None:
        """`wishes` returns those that stand, oldest first."""
        self._model, self._ledgers, self._wishes, self._clock = model, ledgers, wishes, clock
        self._over: dict[str, Seen] = {}

    def look(self) -> Look:
        """Ask; blocks.

        Raises:
            OutsideError: the ledger or the inbox did not answer.
        """
        at = self._clock.now()
        found = self._ledgers.deliveries(self._model, last=LAST + 1)
        seen = tuple(self._over.get(each.id) or self._seen(each) for each in found[:LAST])
        self._over = {each.summary.id: each for each in seen if each.over}
        wishes = tuple(entry for entry in self._wishes() if _waits(entry))
        return Look(at=at, deliveries=seen, more=len(found) > LAST, wishes=wishes)

    def _seen(self, delivery: DeliverySummary) -> Seen:
        return Seen(summary=delivery, alive=self._ledgers.is_alive(delivery), story=self._story(delivery))

    def _story(self, delivery: DeliverySummary) -> Story | None:
        try:
            return ended(tell(self._ledgers.events(delivery.id)), delivery)
        except ValueError:
            # Whoever may write to MLflow may write nonsense; it hides this delivery, and no other.
            return None


def ended(story: Story, delivery: DeliverySummary) -> Story:
    """The story with its end, also of a delivery that died and was closed by another: that one writes no event."""
    if story.outcome is not None or delivery.ended is None:
        return story
    closing = {"outcome": delivery.outcome or "interrupted", "reason": delivery.reason or ""}
    return story.with_event(Event(at=delivery.ended, step="delivery", kind="closed", message="", data=closing))


def _waits(entry: Entry) -> bool:
    """Whether there is no delivery for it, and it is not past its time either."""
    return entry.delivery is None and entry.state in (State.QUEUED, State.STARTED, State.OVER)
