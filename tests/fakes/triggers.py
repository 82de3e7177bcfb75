"""What a receiver needs from the world, as the tests want it."""

from __future__ import annotations

from collections.abc import Callable

from registry.model import DeliverySummary, Event
from registry.triggers.model import Entry
from tidegate.core.errors import OutsideError


class FakeMarks:
    """A registry of one model."""

    def __init__(self, *versions: str) -> None:
        self.versions = frozenset(versions)
        self.reachable = True

    def marked(self, model: str, alias: str) -> frozenset[str]:
        if not self.reachable:
            raise OutsideError("MLflow store: no answer")
        return self.versions


class FakeLedgers:
    """Deliveries by id; those without an end are alive."""

    def __init__(self) -> None:
        self.all: dict[str, DeliverySummary] = {}
        self.recorded: dict[str, list[Event]] = {}
        self.asked: list[str] = []
        """Whose events were asked for, each time."""
        self.listed = 0
        """How often all of them were asked for."""
        self.reachable = True

    def deliveries(self, name: str, *, last: int | None = None) -> list[DeliverySummary]:
        self.listed += 1
        return sorted(self.all.values(), key=lambda each: each.started, reverse=True)[:last]

    def events(self, delivery: str) -> list[Event]:
        self.asked.append(delivery)
        return self.recorded[delivery]

    def is_alive(self, delivery: DeliverySummary) -> bool:
        return delivery.ended is None


class FakeStarter:
    """Notes what it is asked to start; `begin` says what comes of it."""

    def __init__(self, begin: Callable[[Entry], None] = lambda _: None) -> None:
        self.started: list[str] = []
        self.running = True
        self.able = True
        self._begin = begin

    async def start(self, entry: Entry) -> str:
        if not self.able:
            raise OutsideError("no room")
        self.started.append(entry.wish.version)
        self._begin(entry)
        return f"run {len(self.started)}"

    async def runs(self, entry: Entry) -> bool:
        return self.running
