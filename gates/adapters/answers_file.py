"""The file of answers: who was asked, then a line for each pair, written as they come and read to be judged again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Self

from pydantic import Field, TypeAdapter, ValidationError

from gates.comparison import AnsweredPair, Endpoint, EndpointsLine
from gates.json_lines import line_problems
from tidegate.core.errors import UsageError
from tidegate.core.files import lock_open_file
from tidegate.core.spec import Problem, SpecError, text_in

Line = EndpointsLine | AnsweredPair
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


class AnswersFile:
    """A file of answers of one comparison. It holds prompts and answers: only its owner reads it.

    A last line that was cut off, because a process was killed while it wrote, is taken away.
    """

    def __init__(self, path: Path, file: IO[str]) -> None:
        """As `opened`."""
        self._path, self._file = path, file
        self.endpoints: EndpointsLine | None = None
        """Whose answers the file has; None while it has none."""
        self.pairs: tuple[AnsweredPair, ...] = ()
        """What it had when it was opened."""

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[Self]:
        """Open it, or make it.

        Raises:
            SpecError: with the first line that is none of such a file.
            UsageError: it cannot be written, or another process writes it.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise UsageError(f"--pairs {path}: {(error.strerror or 'cannot be opened').lower()}") from error
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            if not lock_open_file(file):
                raise UsageError(f"--pairs {path}: another comparison writes it", hint="name another file")
            opened = cls(path, file)
            if os.fstat(descriptor).st_size:
                opened._read()
            yield opened

    def begin(self, stable: Endpoint, canary: Endpoint) -> None:
        """Say whose answers follow.

        Raises:
            UsageError: the file has answers of others.
        """
        asked = EndpointsLine(stable=stable, canary=canary)
        if self.endpoints is None:
            self.endpoints = asked
            self.add(asked)
        elif self.endpoints != asked:
            arms = ((self.endpoints.stable, stable), (self.endpoints.canary, canary))
            before, now = next(pair for pair in arms if pair[0] != pair[1])
            raise UsageError(
                f"--pairs {self._path} has answers of {before}, and {now} is asked now",
                hint="name another file, or leave out --stable and --canary to judge what it has",
            )

    def add(self, line: Line) -> None:
        """Keep what was just answered; it is on its way to the disk when this returns."""
        self._file.write(line.model_dump_json() + "\n")
        self._file.flush()

    def _read(self) -> None:
        # By their ends alone: an answer may hold other characters that Python takes for the end of a line.
        *texts, torn = text_in(self._path, "a file that `gate compare --pairs` wrote").split("\n")
        if torn:
            os.truncate(self._path, self._path.stat().st_size - len(torn.encode()))
        pairs: list[AnsweredPair] = []
        for at, text in enumerate(texts, start=1):
            try:
                line = _LINE.validate_json(text)
            except ValidationError as error:
                raise SpecError(line_problems(str(self._path), at, error)) from error
            if isinstance(line, AnsweredPair) == (self.endpoints is None):
                expected = "the endpoints as the first line, and once"
                raise SpecError([Problem(str(self._path), at, "kind", line.kind, expected)])
            if isinstance(line, AnsweredPair):
                pairs.append(line)
            else:
                self.endpoints = line
        self.pairs = tuple(pairs)
