"""The file of a session: the transcript of its test, written before it has any effect.

It is not forced to the disk line by line: a window whose line was lost with the machine is read and judged once more,
from the same moment to the same moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gates.transcript import Line, read, written
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.files import lock_open_file
from tidegate.core.spec import Problem, SpecError, text_in

BEGINS = '{"kind":"terms"'
"""The first line of every transcript."""


class SessionJournal:
    """A transcript that grows; only its owner reads it."""

    def __init__(self, path: Path) -> None:
        """Nothing is opened yet."""
        self.path = path

    def lines(self) -> Sequence[Line]:
        """What was written; the half of a last line, of a process that was killed, is taken away.

        Raises:
            SpecError: with the first line that is none of a transcript.
            OSError: the file is there and cannot be changed.
        """
        if not self.path.exists() or not self.path.stat().st_size:
            return ()
        text = text_in(self.path, "the transcript of a session")
        # By their ends alone: a reason may quote other characters that Python takes for the end of a line.
        *whole, torn = text.split("\n")
        # First, because what is none of ours is left as it is.
        found = list(read((f"{line}\n" for line in whole), file=str(self.path)))
        if torn:
            if not (found or BEGINS.startswith(torn) or torn.startswith(BEGINS)):
                raise SpecError([Problem(str(self.path), 1, "", "something else", "the transcript of a session")])
            os.truncate(self.path, self.path.stat().st_size - len(torn.encode()))
        return found

    def write(self, lines: Sequence[Line]) -> None:
        """Add them.

        Raises:
            OSError: they could not be written, or not all of them.
        """
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write("".join(f"{written(line)}\n" for line in lines).encode())


@contextmanager
def owned(lock: Path, option: str, by: str) -> Iterator[None]:
    """Hold the file `lock` alone while the block lasts; made if it is not there.

    Args:
        lock: the file.
        option: how a person named it, for messages.
        by: the command that holds it.

    Raises:
        UsageError: it cannot be used, or another process holds it.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = lock.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option}: {(error.strerror or 'cannot be used').lower()}") from error
    with file:
        if not lock_open_file(file):
            raise UsageError(f"{option}: another `{by}` uses it", hint="wait for its end, or name another")
        yield


@contextmanager
def on_disk(place: Path | str) -> Iterator[None]:
    """Raise OutsideError, naming `place`, for whatever the disk refuses within the block."""
    try:
        yield
    except OSError as error:
        message = f"{place}: {(error.strerror or 'cannot be written').lower()}"
        raise OutsideError(message, hint="check the disk") from error
