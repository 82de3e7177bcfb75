"""The one writer of a delivery's ledger: a queue, a thread that empties it, and on disk what is not written yet."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from pipelines.ports import Ledger
from pipelines.spec.sections import PatienceSpec
from registry.deliveries import MlflowDeliveries
from registry.errors import StoreRefused, StoreUnreachable, UnknownDelivery
from registry.model import SERVING, Event, ModelVersion, ServingAliases
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError
from tidegate.core.files import lock_open_file
from tidegate.core.model import Value

if TYPE_CHECKING:
    from registry.versions import MlflowRegistry


class EventEntry(Value):
    """An event."""

    kind: Literal["said"] = "said"
    event: Event


class MetricsEntry(Value):
    """Numbers that become time series."""

    kind: Literal["measured"] = "measured"
    numbers: Mapping[str, float]
    at: datetime


class FileEntry(Value):
    """A file to keep besides the events, as it is when its turn comes."""

    kind: Literal["attached"] = "attached"
    path: Path
    folder: str = ""


class TagsEntry(Value):
    """Tags on the model version."""

    kind: Literal["marked"] = "marked"
    version: ModelVersion
    tags: Mapping[str, str]


class AliasEntry(Value):
    """The version is champion again."""

    kind: Literal["reinstated"] = "reinstated"
    version: ModelVersion
    names: ServingAliases = SERVING


class ClosingEntry(Value):
    """The delivery is over."""

    kind: Literal["closed"] = "closed"
    outcome: str
    reason: str


Entry = EventEntry | MetricsEntry | FileEntry | TagsEntry | AliasEntry | ClosingEntry

ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])


def write_entry(entry: Entry, ledger: Ledger, registry: MlflowRegistry | None, *, again: bool) -> None:
    """Write it. `again`: it may have been written by an attempt before whose answer was lost, and must not be twice.

    Raises:
        TidegateError: it is not written, or not known to be.
    """
    match entry:
        case EventEntry(event=event):
            if not (again and is_recorded(event, ledger.recorded())):
                ledger.append(event)
        case MetricsEntry(numbers=numbers, at=at):
            ledger.measure(numbers, at=at)
        case FileEntry(path=path, folder=folder):
            ledger.attach(path, folder=folder)
        case TagsEntry(version=version, tags=tags) if registry:
            registry.mark(version, tags)
        case AliasEntry(version=version, names=names) if registry:
            registry.reinstate(version, names)
        case ClosingEntry(outcome=outcome, reason=reason):
            ledger.close(outcome, reason)
        case _:
            raise AssertionError(f"nobody gave a registry, and one is written to: {entry.kind}")


def is_recorded(event: Event, events: Iterable[Event]) -> bool:
    """Whether it is among those, as a store gives it back: with lists where it had tuples.

    An event has its time to the microsecond: one like it is this one.
    """
    return event.model_dump(mode="json") in (each.model_dump(mode="json") for each in events)


def passes(error: Exception) -> bool:
    """Whether the same may succeed later: the store was not there. One that says no goes on saying so."""
    return isinstance(error, StoreUnreachable) and not isinstance(error, StoreRefused)


SUFFIX = ".jsonl"

log = logging.getLogger(__name__)


class Spool:
    """The file of one process of a delivery. It is locked while it is open, and empty while everything is written."""

    def __init__(self, folder: Path, delivery: str) -> None:
        """Opens the delivery's file, or one next to it where another process that lives has that."""
        folder.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            self.path = folder / f"{delivery}{f'.{number}' * (number > 1)}{SUFFIX}"
            self._file = self.path.open("ab+")
            # Another process may have removed it before it was locked.
            if lock_open_file(self._file) and os.fstat(self._file.fileno()).st_nlink:
                break
            self._file.close()
        # What a crash cut short is no entry, and must not swallow the next one.
        self._file.seek(0)
        content = self._file.read()
        if (whole := content.rfind(b"\n") + 1) < len(content):
            log.warning("%s: its last line was cut short; it is left out", self.path)
            self._file.truncate(whole)
        self._is_lost = False

    def add(self, entry: Entry) -> None:
        """Keep it. A disk that takes nothing is told of once: it must stop no delivery."""
        try:
            self._file.seek(0, 2)
            self._file.write(ENTRY.dump_json(entry) + b"\n")
            self._file.flush()
        except OSError as error:
            if not self._is_lost:
                log.warning("what MLflow has not taken yet cannot be kept in %s: %s", self.path, error)
            self._is_lost = True

    def clear(self) -> None:
        """Everything is written."""
        if not self._file.closed:
            self._file.truncate(0)

    def end(self) -> None:
        """Let go of it; a file with nothing in it goes."""
        if not self._file.closed:
            if not self._file.seek(0, 2):
                self.path.unlink(missing_ok=True)
            self._file.close()

    def left(self) -> Sequence[Entry]:
        """What a process before this one could not write."""
        return list(read_entries(self.path))


def read_entries(path: Path) -> Iterator[Entry]:
    """All whole lines; what a crash cut short, or a later tidegate wrote, is left out and told."""
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            yield ENTRY.validate_json(line)
        except ValidationError:
            log.warning("%s:%d: no entry of a ledger; it is left out", path, number)


def write_leftovers(
    folder: Path, ledgers: MlflowDeliveries, registry: MlflowRegistry, complain: Callable[[str], None]
) -> None:
    """Write every file of which no process lives, and remove it. One that cannot be written stays, and is told."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with path.open("rb+") as file:
            if not lock_open_file(file):
                continue
            try:
                for problem in _written(path, ledgers, registry):
                    complain(problem)
            except UnknownDelivery:
                # It is another store's; the one who names that will write it.
                continue
            except TidegateError as error:
                complain(f"records of a delivery wait in {path}: {error}")
                continue
            path.unlink(missing_ok=True)


def _written(path: Path, ledgers: MlflowDeliveries, registry: MlflowRegistry) -> Iterator[str]:
    """Write it in order, each entry once; yields what the store refuses."""
    entries, delivery = list(read_entries(path)), path.name.partition(".")[0]
    if not entries:
        return
    ledger = ledgers.join(delivery, carries=False)
    if ledgers.summary(delivery).ended is not None:
        yield from _too_late(path, ledger, entries)
        return
    for entry in entries:
        try:
            write_entry(entry, ledger, registry, again=True)
        except (TidegateError, OSError) as error:
            if passes(error):
                raise
            yield f"delivery {delivery}: a record of it was refused: {error}"


def _too_late(path: Path, ledger: Ledger, entries: Sequence[Entry]) -> Iterator[str]:
    """Somebody closed the delivery meanwhile: nothing is added to it, and nothing is lost."""
    known = ledger.recorded()
    if all(is_recorded(entry.event, known) for entry in entries if isinstance(entry, EventEntry)):
        return
    kept = path.with_suffix(".refused")
    kept.write_bytes(path.read_bytes())
    yield f"delivery {ledger.delivery} was closed before its last records could be written; they are in {kept}"


HOLD_SECONDS = 1.0
"""At most: then the queue moves again, whether or not anybody let it go."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class WriterLimits:
    """How patient a delivery is with its ledger, in seconds."""

    call: float = 10.0
    """After which a call that has not answered counts as silence."""
    patience: float = 600.0
    """Of silence, until a delivery gives up that must know that an event is durable."""
    end: float = 30.0
    """Of silence, until a delivery that is over ends its process and leaves the rest to the next one."""
    pauses: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0)
    """Between two attempts, the last one again and again."""

    @classmethod
    def of(cls, patience: PatienceSpec) -> WriterLimits:
        """As a spec says."""
        call, registry, end = (each.total_seconds() for each in (patience.call, patience.registry, patience.end))
        return cls(call=call, patience=registry, end=end)


@dataclass(frozen=True)
class StoreSilence:
    """The store does not answer."""

    since: float
    """By the delivery's clock."""
    reason: str


@dataclass
class _Waiting:
    entry: Entry
    durable: Future[None]
    again: bool
    """Whether an attempt was made whose answer is not known."""


class Writer:
    """Writes entries in the order in which they come, each exactly once. Its calls are safe from any thread."""

    def __init__(
        self,
        ledger: Ledger,
        registry: MlflowRegistry | None,
        clock: Clock,
        *,
        spool: Spool | None,
        limits: WriterLimits,
    ) -> None:
        """What `spool` holds is of a process before this one, and is written first."""
        self._ledger, self._registry = ledger, registry
        self._clock, self._spool, self._limits = clock, spool, limits
        self._changed = Condition()
        left = spool.left() if spool else ()
        self._queue = deque(_Waiting(entry, Future(), again=True) for entry in left)
        self._asked: deque[Callable[[], None]] = deque()
        self._works = self._has_ended = False
        self._not_before = 0.0
        self._failures = 0
        self._busy_since: float | None = None
        self._silence: StoreSilence | None = None
        self.refusal: TidegateError | None = None
        """Why the store takes no events any more: a delivery that others closed hears of it so."""

    @property
    def silence(self) -> StoreSilence | None:
        """Since when the store has not answered; None while it does, and while nothing is asked of it."""
        return self._silence

    @property
    def left(self) -> int:
        """How many entries are not written."""
        with self._changed:
            return len(self._queue)

    def put(self, entry: Entry) -> Future[None]:
        """Take it, and return at once; the future is done when it is durable."""
        waiting = _Waiting(entry, Future(), again=False)
        with self._changed:
            self._queue.append(waiting)
            if self._spool:
                self._spool.add(entry)
            self._work()
        return waiting.durable

    def drained(self) -> Future[None]:
        """Done when everything that is in the queue now is written, or refused."""
        over: Future[None] = Future()
        with self._changed:
            last = self._queue[-1].durable if self._queue else None
        if last is None:
            over.set_result(None)
        else:
            last.add_done_callback(lambda _: over.set_result(None))
        return over

    def ask(self, call: Callable[[], Answer]) -> Future[Answer]:
        """Let the thread that has the ledger call this, before whatever waits in the queue."""
        answer: Future[Answer] = Future()
        with self._changed:
            self._asked.append(lambda: _settle(answer, call))
            self._work()
        return answer

    def hold(self) -> None:
        """Begin nothing more for a moment: users go first."""
        with self._changed:
            self._not_before = max(self._not_before, time.monotonic() + HOLD_SECONDS)

    def release(self) -> None:
        """Go on at once."""
        with self._changed:
            self._not_before = 0.0
            self._changed.notify()

    def overdue(self) -> None:
        """Somebody waited for as long as a call may take: that is silence too."""
        with self._changed:
            if self._silence is None and self._works:
                since = self._clock.monotonic() if self._busy_since is None else self._busy_since
                self._silence = StoreSilence(since, f"no answer within {self._limits.call:g} s")

    def end(self) -> None:
        """Begin nothing more, and let go of the disk. What is not written stays there."""
        with self._changed:
            self._has_ended = True
            self._changed.notify()
            if self._spool:
                self._spool.end()

    def _work(self) -> None:
        if not self._works:
            self._works = True
            # A daemon: a store that never answers must not keep the process alive.
            Thread(target=self._run, name=f"ledger of {self._ledger.delivery}", daemon=True).start()
        self._changed.notify()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            job()

    def _next(self) -> Callable[[], None] | None:
        """What is to be done now; None when nothing is left, and the thread's work with it."""
        with self._changed:
            while not self._has_ended:
                if self._asked:
                    return self._asked.popleft()
                if not self._queue:
                    self._works, self._silence = False, None
                    return None
                pause = self._not_before - time.monotonic()
                if pause <= 0:
                    self._busy_since = self._clock.monotonic()
                    return self._write_first
                self._changed.wait(pause)
            return None

    def _write_first(self) -> None:
        waiting = self._queue[0]
        try:
            write_entry(waiting.entry, self._ledger, self._registry, again=waiting.again)
        except Exception as error:  # noqa: BLE001  # whatever it was, the next entry must not wait for this one
            if passes(error):
                self._try_later(waiting, error)
            else:
                self._written(waiting, error)
        else:
            self._written(waiting, None)

    def _written(self, waiting: _Waiting, error: Exception | None) -> None:
        with self._changed:
            self._queue.popleft()
            self._failures, self._silence = 0, None
            # Before anybody hears of it: who ends then must find nothing left on the disk.
            if self._spool and not self._queue:
                self._spool.clear()
            if isinstance(waiting.entry, EventEntry) and isinstance(error, TidegateError):
                self.refusal = error
        if error is None:
            waiting.durable.set_result(None)
        else:
            waiting.durable.set_exception(error)

    def _try_later(self, waiting: _Waiting, error: Exception) -> None:
        with self._changed:
            waiting.again = True
            if isinstance(waiting.entry, FileEntry):
                # Files may lie with somebody else, who may be away alone: events do not wait for that.
                self._queue.rotate(-1)
            self._silence = self._silence or StoreSilence(self._busy_since or 0.0, str(error))
            pauses = self._limits.pauses
            self._not_before = time.monotonic() + pauses[min(self._failures, len(pauses) - 1)]
            self._failures += 1


def _settle(answer: Future[Any], call: Callable[[], object]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001  # it is raised where it was asked
        answer.set_exception(error)
