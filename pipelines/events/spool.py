"""Entries of the ledger that are not written yet: on disk, where the next command finds and writes them."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from pipelines.ports import Ledger
from registry.deliveries import MlflowDeliveries
from registry.errors import StoreRefused, StoreUnreachable, UnknownDelivery
from registry.model import SERVING, Event, ModelVersion, ServingAliases
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
        self._file = _free_one(folder, delivery)
        self.path = Path(self._file.name)
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


def _free_one(folder: Path, delivery: str) -> IO[bytes]:
    for number in itertools.count(1):
        file = (folder / f"{delivery}{f'.{number}' * (number > 1)}{SUFFIX}").open("ab+")
        # Another process may have removed it before it was locked.
        if lock_open_file(file) and os.fstat(file.fileno()).st_nlink:
            _cut_torn_line(file)
            return file
        file.close()
    raise AssertionError("numbers do not end")


def _cut_torn_line(file: IO[bytes]) -> None:
    """What a crash cut short is no entry, and must not swallow the next one."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        log.warning("%s: its last line was cut short; it is left out", file.name)
        file.truncate(whole)


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
