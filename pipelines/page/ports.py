"""What the page needs from the world."""

from __future__ import annotations

from typing import Protocol

from registry.model import DeliverySummary, Event


class Ledgers(Protocol):
    """The deliveries of a model, whoever started them. Every call may block."""

    def deliveries(self, name: str, *, last: int | None = None) -> list[DeliverySummary]:
        """The last of the model, newest first.

        Raises:
            StoreUnreachable: MLflow did not answer.
        """
        ...

    def is_alive(self, delivery: DeliverySummary) -> bool:
        """Whether it has not ended and shows signs of life."""
        ...

    def events(self, delivery: str) -> list[Event]:
        """What its ledger holds, oldest first.

        Raises:
            StoreUnreachable: MLflow did not answer.
            ValueError: something else than tidegate has written there.
        """
        ...
