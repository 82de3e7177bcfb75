"""What is not written yet, on disk: a process that ends before the store is back leaves it to the next command."""

from __future__ import annotations

import fcntl
import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from pipelines.records.entries import ENTRY, Entry

SUFFIX = ".jsonl"

log = logging.getLogger(__name__)


class Spool:
    """The file of one process of a delivery. It is locked while it is open, and empty while everything is written."""

    def __init__(self, folder: Path, delivery: str) -> None:
        """Opens the delivery's file, or one beside it where another process that lives has that."""
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
        file = (folder / f"{delivery}{f'.{number}' * (number > 1)}{SUFFIX}").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            return file
    raise AssertionError("numbers do not end")


def read_entries(path: Path) -> Iterator[Entry]:
    """All whole lines; what a crash cut short, or a later tidegate wrote, is left out and told."""
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            yield ENTRY.validate_json(line)
        except ValidationError:
            log.warning("%s:%d: no entry of a ledger; it is left out", path, number)


@contextmanager
def left_alone(path: Path) -> Iterator[bool]:
    """Whether no process that lives has the file; it is ours inside."""
    with path.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
