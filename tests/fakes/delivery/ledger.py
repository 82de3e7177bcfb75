"""Ledgers in memory: one delivery of a model at a time, events and numbers to look at.

Their store may be away, or take a question and not answer; it must not be asked by the thread that has the event loop.
`tidegate.testing.MemoryStore` is for deliveries that many processes open and carry on at once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from threading import Event as Signal
from typing import Any

from registry.errors import DeliveryLost, DeliveryRuns, StopAsked, StoreUnreachable, UnknownDelivery
from registry.model import DeliverySummary, Event, GoldenSet, ModelVersion
from registry.ownership import life_of, why_dead
from tidegate.core.clock import Clock, Life, Watch


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

    def __init__(self, clock: Clock, delivery: str = "1", summary: DeliverySummary | None = None) -> None:
        self.delivery = delivery
        self.events: list[Event] = []
        self.numbers: list[tuple[datetime, dict[str, float]]] = []
        self.attached: list[str] = []
        self.files: dict[str, bytes] = {}
        """What is attached now, by its place."""
        self.outcome: str | None = None
        self.reason: str | None = None
        self._clock = clock
        self._summary = summary or DeliverySummary(
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


class FakeDeliveries:
    """Behaves as `MlflowDeliveries` does."""

    def __init__(self, clock: Clock, *, host: str = "here", pid: int = 1) -> None:
        self.ledgers: list[FakeLedger] = []
        self._clock, self._host, self._pid = clock, host, pid
        self._ids = (str(number) for number in itertools.count(1))

    def open_delivery(
        self,
        version: ModelVersion,
        champion: ModelVersion | None,
        *,
        spec_digest: str,
        patience: timedelta = timedelta(0),
        key: str | None = None,
        engines: tuple[str, str] | None = None,
        golden: GoldenSet | None = None,
    ) -> FakeLedger:
        for other in self.ledgers:
            if other.summary.name != version.name or other.summary.ended is not None:
                continue
            if self.is_alive(other.summary):
                if key is not None and other.summary.key == key:
                    return other
                raise DeliveryRuns(f"delivery {other.delivery} of {version.name} runs on {other.summary.host}")
            other.bury()
        now = self._clock.now()
        summary = DeliverySummary(
            id=next(self._ids), name=version.name, version=version.version,
            champion=champion.version if champion else None, started=now, host=self._host, pid=self._pid, heartbeat=now,
            patience_seconds=patience.total_seconds(), key=key,
            on_trial=engines[0] if engines else "", in_production=engines[1] if engines else "",
        )  # fmt: skip
        self.ledgers.append(FakeLedger(self._clock, summary.id, summary))
        return self.ledgers[-1]

    def whole_id(self, given: str) -> str:
        return given

    def join(self, delivery: str, *, carries: bool = True) -> FakeLedger:
        found = next((ledger for ledger in self.ledgers if ledger.delivery == delivery), None)
        if found is None:
            raise UnknownDelivery(f"there is no delivery {delivery}")
        return found

    def fetch(self, delivery: str, folder: str, into: Path, named: Collection[str] | None = None) -> list[Path]:
        found = []
        for place, content in sorted(self.join(delivery).files.items()):
            if Path(folder) in Path(place).parents:
                found.append(into / place)
                if named is None or place in named:
                    (into / place).parent.mkdir(parents=True, exist_ok=True)
                    (into / place).write_bytes(content)
        return found

    def deliveries(self, name: str, *, last: int | None = None) -> list[DeliverySummary]:
        return [ledger.summary for ledger in reversed(self.ledgers) if ledger.summary.name == name][:last]

    def events(self, delivery: str) -> list[Event]:
        return next(list(ledger.events) for ledger in self.ledgers if ledger.delivery == delivery)

    def is_alive(self, delivery: DeliverySummary) -> bool:
        return delivery.ended is None and (
            life_of(delivery, Watch(), self._clock, machine=self._host, process_exists=lambda pid: True) is Life.ALIVE
        )


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
