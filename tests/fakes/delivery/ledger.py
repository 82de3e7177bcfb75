"""A ledger in memory, with events and numbers to look at.

Its store may be away, or take a question and not answer; it must not be asked by the thread that has the event loop.
`MemoryStore` is for deliveries that many processes open and carry on at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from pathlib import Path
from threading import Event as Signal
from typing import Any

from registry.deliveries import why_dead
from registry.errors import DeliveryLost, StopAsked, StoreUnreachable
from registry.model import DeliverySummary, Event
from tidegate.core.clock import Clock


class OffLoop:
    """Passes everything on to a ledger or a registry, and fails when the loop's own thread asks."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return refused_on_the_loop(found, name) if callable(found) else found


def refused_on_the_loop(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(call)
    def asked(*args: Any, **named: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return call(*args, **named)
        raise AssertionError(f"`{name}` of the store was called by the thread of the event loop")

    return asked


OUTCOMES = ("delivered", "rolled-back", "inconclusive", "interrupted", "failed")


class FakeLedger:
    """Behaves as `MlflowLedger` does; `events`, `numbers`, `attached`, `outcome` and `reason` say what it was told."""

    def __init__(self, clock: Clock, delivery: str = "1") -> None:
        self.delivery = delivery
        self.events: list[Event] = []
        self.numbers: list[tuple[datetime, dict[str, float]]] = []
        self.attached: list[str] = []
        self.files: dict[str, bytes] = {}
        """What is attached now, by its place."""
        self.outcome: str | None = None
        self.reason: str | None = None
        self._clock = clock
        self._summary = DeliverySummary(
            id=delivery, name="m", version="2", champion="1", started=clock.now(), host="h", pid=1,
            heartbeat=clock.now(),
        )  # fmt: skip

    @property
    def summary(self) -> DeliverySummary:
        return self._summary

    def append(self, event: Event) -> None:
        self._touch(last_step=event.step)
        self.events.append(event)

    def recorded(self) -> list[Event]:
        return list(self.events)

    def measure(self, numbers: Mapping[str, float], *, at: datetime) -> None:
        self.numbers.append((at, dict(numbers)))

    def attach(self, path: Path, *, folder: str = "") -> None:
        place = str(Path(folder) / path.name)
        self.attached.append(place)
        self.files[place] = path.read_bytes()

    def beat(self) -> None:
        self._touch()
        for event in self.recorded():
            if event.kind == "stop":
                raise StopAsked(event.message)

    def close(self, outcome: str, reason: str) -> None:
        if outcome not in OUTCOMES:
            raise ValueError(f"outcome {outcome!r}; expected one of {', '.join(OUTCOMES)}")
        self._touch(ended=self._clock.now(), outcome=outcome, reason=reason)
        self.outcome, self.reason = outcome, reason

    def bury(self) -> None:
        """Close it from outside, as another process does that found it dead."""
        reason = why_dead(self._summary)
        update = {"ended": self._clock.now(), "outcome": "interrupted", "reason": reason}
        self._summary = self._summary.model_copy(update=update)

    def _touch(self, **changes: object) -> None:
        if self._summary.ended is not None:
            raise DeliveryLost(f"delivery {self.delivery} was closed as {self._summary.outcome}")
        self._summary = self._summary.model_copy(update={"heartbeat": self._clock.now(), **changes})


CALLS = frozenset({"append", "recorded", "measure", "attach", "beat", "close"})


class AwayLedger:
    """Passes everything on to a ledger in memory while its store is there."""

    def __init__(self, ledger: FakeLedger) -> None:
        self.ledger = ledger
        self.refused = 0
        """How many calls found nobody there."""
        self._gone_for = 0
        self._answers = Signal()
        self._answers.set()

    def go_away(self, *, calls: int = 1_000_000) -> None:
        """Refuse connections from now on, so many times."""
        self._gone_for = calls

    def hang(self) -> None:
        """Take what is asked and say nothing, until it answers again."""
        self._answers.clear()

    def come_back(self) -> None:
        """Answer the one who waits, and the one who comes."""
        self._gone_for = 0
        self._answers.set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.ledger, name)
        return self._perhaps(found) if name in CALLS else found

    def _perhaps(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def asked(*args: Any, **named: Any) -> Any:
            self._answers.wait()
            if self._gone_for:
                self._gone_for -= 1
                self.refused += 1
                raise StoreUnreachable("MLflow store http://mlflow: no answer")
            return call(*args, **named)

        return asked
