"""What a receiver of webhooks needs from the world."""

from __future__ import annotations

from typing import Protocol

from registry.model import DeliverySummary
from registry.triggers.model import Entry


class Marks(Protocol):
    """The registry, asked which versions are to be delivered."""

    def marked(self, model: str, alias: str) -> frozenset[str]:
        """Numbers of the versions that carry the alias, or the tag that names it; none when there is no such model.

        Raises:
            StoreUnreachable: MLflow did not answer.
        """
        ...


class Ledgers(Protocol):
    """The deliveries of a model, whoever started them."""

    def deliveries(self, name: str) -> list[DeliverySummary]:
        """All of the model, newest first."""
        ...

    def is_alive(self, delivery: DeliverySummary) -> bool:
        """Whether it has not ended and shows signs of life."""
        ...


class Starter(Protocol):
    """Starts deliveries and does not wait for them."""

    async def start(self, entry: Entry) -> str:
        """Begin a delivery of that version; returns a name for what was started.

        Raises:
            TidegateError: nothing was started.
        """
        ...

    async def runs(self, entry: Entry) -> bool:
        """Whether what was started for the entry still runs, also when it was started by a process before this one."""
        ...
