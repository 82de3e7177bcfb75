"""Runs a program that a gate asks: in a session of its own, so that all of it can be ended, and without our secrets."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gates.adapters.outside.kept import KEPT_CHARACTERS, MOST_BYTES
from gates.errors import NotAnswered
from tidegate.core.access.secrets import scrubbed
from tidegate.core.children import Child, variables_for

NOT_THERE = 4
"""Exit code of a program that may have an answer when it is asked again."""
LONGER = "give it more time by `within`, or fewer questions"
SHORTER = "let it write what is no answer to a file of its own"
PATIENCE_SECONDS = 5.0
"""For a program that is told to end."""


@dataclass(frozen=True)
class EndedProgram:
    """How it ended, and what it said; without any secret."""

    code: int
    """As Python has it: negative for the signal that ended it."""
    said: str
    errors: str
    """The end of it."""

    @property
    def how(self) -> str:
        """Its ending in words."""
        return f"ended by {signal.Signals(-self.code).name}" if self.code < 0 else f"ended with code {self.code}"

    @property
    def last_words(self) -> str:
        """The last line of its standard error, after a colon; empty where there is none."""
        lines = self.errors.strip().splitlines()
        return f": {lines[-1].strip()}" if lines else ""

    @property
    def shown(self) -> str:
        """What is kept of it, for people."""
        texts = {"standard output": self.said, "standard error": self.errors}
        parts = (f"{name}:\n{text[-KEPT_CHARACTERS:].rstrip()}" for name, text in texts.items() if text.strip())
        return "\n".join([f"exit code {self.code}", *parts])


class Programs:
    """Starts programs in the spec's folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str], variables: Sequence[str]) -> None:
        """What a program gets of `environment` is what `tidegate.core.children` says, and `variables` by name."""
        self._folder, self._environment, self._variables = folder, environment, variables

    async def run(
        self, words: Sequence[str], *, seconds: float, more: Mapping[str, str], told: bytes = b"", whole: bool = True
    ) -> EndedProgram:
        """Run it to its end.

        Args:
            words: program and arguments.
            seconds: until it is ended.
            more: further variables.
            told: its standard input.
            whole: whether all of its standard output matters, and not just the end.

        Raises:
            NotAnswered: it cannot be started, takes too long, or says too much.
        """
        secrets = self._secrets()
        usual = variables_for(Child.COMMAND, self._environment)
        process = await self._started(words, {**usual, **secrets, **more})
        try:
            async with asyncio.timeout(seconds):
                said, complaints = await _talked(process, told, whole=whole)
                code = await process.wait()
        except TimeoutError as error:
            raise NotAnswered(f"no answer within {seconds:.0f} s", again=False, hint=LONGER) from error
        finally:
            await _ended(process)
        # First of all: what follows ends up in verdicts, errors and kept files.
        texts = (scrubbed(text.decode(errors="replace"), secrets.values()) for text in (said, complaints))
        return EndedProgram(code, *texts)

    def _secrets(self) -> dict[str, str]:
        missing = [name for name in self._variables if name not in self._environment]
        if missing:
            hint = "set it where the step runs, or leave it out of `variables`"
            raise NotAnswered(f"the variable {missing[0]} is not set", again=False, hint=hint)
        return {name: self._environment[name] for name in self._variables}

    async def _started(self, words: Sequence[str], environment: Mapping[str, str]) -> Process:
        program, *arguments = words
        try:
            return await asyncio.create_subprocess_exec(
                program,
                *arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=self._folder,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            hint = "the first word of `run` must be a program where the step runs"
            raise NotAnswered(f"{program} cannot be run: {error.strerror}", again=False, hint=hint) from error


async def _talked(process: Process, told: bytes, *, whole: bool) -> tuple[bytes, bytes]:
    """Hand it its input, and read both outputs to their ends."""
    assert process.stdin and process.stdout and process.stderr, "started with pipes"

    async def tell(stream: asyncio.StreamWriter) -> None:
        # Who does not read it need not.
        with suppress(ConnectionError):
            stream.write(told)
            await stream.drain()
        stream.close()

    _, said, errors = await asyncio.gather(
        tell(process.stdin), _read(process.stdout, whole=whole), _read(process.stderr, whole=False)
    )
    return said, errors


async def _read(stream: asyncio.StreamReader, *, whole: bool) -> bytes:
    found = b""
    while part := await stream.read(1 << 16):
        found += part
        if len(found) > MOST_BYTES and whole:
            raise NotAnswered(f"it says more than {MOST_BYTES >> 20} MiB", again=False, hint=SHORTER)
        found = found if whole else found[-KEPT_CHARACTERS:]
    return found


async def _ended(process: Process) -> None:
    """End what is left of it, its children among it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # Pipes are closed once they are read to their ends; one of who left the session may stay open.
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            for stream in (process.stdout, process.stderr):
                while stream and await stream.read(1 << 16):
                    pass
