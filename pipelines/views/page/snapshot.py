"""A snapshot of the ledger and of the request queue: all that the live page shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from pipelines.events.payloads import Closing
from pipelines.events.state import DeliveryState, state_of
from pipelines.requests import QueuedRequest, RequestState
from registry.model import DeliverySummary, Event
from tidegate.core.clock import Clock
from tidegate.core.errors import NotGenuine
from tidegate.core.model import Value


class DeliverySnapshot(Value):
    """One delivery."""

    summary: DeliverySummary
    alive: bool
    """Whether somebody carries it; False for one that is over."""
    story: DeliveryState | None
    """None when its record cannot be read."""

    @property
    def over(self) -> bool:
        return self.summary.ended is not None


class PageSnapshot(Value):
    """What the ledger and the request queue held at one moment."""

    at: datetime
    deliveries: tuple[DeliverySnapshot, ...] = ()
    """Newest first."""
    more: bool = False
    """Whether there are older ones, which are not shown."""
    requests: tuple[QueuedRequest, ...] = ()
    """Those that have no delivery yet, oldest first."""


class PageView(Value):
    """What is known now."""

    model: str
    now: datetime
    look: PageSnapshot | None = None
    """The last snapshot; None before the first."""
    silent_since: datetime | None = None
    """When the first of the polls failed that have failed since; None when the last one succeeded."""

    @property
    def newest(self) -> DeliverySnapshot | None:
        """The delivery that began last; None when there is none, or nothing is known yet."""
        return next(iter(self.look.deliveries), None) if self.look else None


class PageParts(Value):
    """The page as it stands: its parts as HTML, by their ids in the page."""

    parts: Mapping[str, str]
    digest: str
    """Of all that does not change by time alone: two pictures with the same one say the same."""


class DeliveryRecords(Protocol):
    """The deliveries of a model, no matter who started them. Every call may block."""

    def deliveries(self, name: str, *, last: int | None = None) -> Sequence[DeliverySummary]:
        """The last of the model, newest first.

        Raises:
            StoreUnreachable: MLflow did not answer.
        """
        ...

    def is_alive(self, delivery: DeliverySummary) -> bool:
        """Whether it has not ended and shows signs of life."""
        ...

    def events(self, delivery: str) -> Sequence[Event]:
        """What its ledger holds, oldest first.

        Raises:
            StoreUnreachable: MLflow did not answer.
            ValueError: something else than tidegate has written there.
        """
        ...


LAST = 10
"""Deliveries that are shown."""


class SnapshotReader:
    """Remembers the stories of deliveries that are over, which nobody changes any more."""

    def __init__(
        self, model: str, ledgers: DeliveryRecords, requests: Callable[[], Sequence[QueuedRequest]], clock: Clock
    ) -> None:
        """`requests` returns those that stand, oldest first."""
        self._model, self._ledgers, self._requests, self._clock = model, ledgers, requests, clock
        self._over: dict[str, DeliverySnapshot] = {}

    def look(self) -> PageSnapshot:
        """Ask; blocks.

        Raises:
            OutsideError: the ledger or the inbox did not answer.
        """
        at = self._clock.now()
        found = self._ledgers.deliveries(self._model, last=LAST + 1)
        seen = tuple(self._over.get(each.id) or self._seen(each) for each in found[:LAST])
        self._over = {each.summary.id: each for each in seen if each.over}
        requests = tuple(entry for entry in self._requests() if _waits(entry))
        return PageSnapshot(at=at, deliveries=seen, more=len(found) > LAST, requests=requests)

    def _seen(self, delivery: DeliverySummary) -> DeliverySnapshot:
        return DeliverySnapshot(summary=delivery, alive=self._ledgers.is_alive(delivery), story=self._story(delivery))

    def _story(self, delivery: DeliverySummary) -> DeliveryState | None:
        try:
            return ended(state_of(self._ledgers.events(delivery.id)), delivery)
        except (NotGenuine, ValueError):
            # Anyone who may write to MLflow may write nonsense; it hides this delivery, and no other.
            return None


def ended(story: DeliveryState, delivery: DeliverySummary) -> DeliveryState:
    """The story with its end, also of a delivery that died and was closed by another: that one writes no event."""
    if story.outcome is not None or delivery.ended is None:
        return story
    closing = Closing(outcome=delivery.outcome or "interrupted", reason=delivery.reason or "")
    return story.apply(closing.event(delivery.ended, "delivery"))


def _waits(entry: QueuedRequest) -> bool:
    """Whether there is no delivery for it, and it is not past its time either."""
    return entry.delivery is None and entry.state in (RequestState.QUEUED, RequestState.STARTED, RequestState.OVER)
