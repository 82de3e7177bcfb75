"""Asks a command: the question on its standard input and in its environment, the answer on its standard output.

Exit codes are tidegate's own: 0 pass, 1 fail, 3 inconclusive, 4 something outside was not there. A JSON document, alone
on the standard output or as its last line, is the answer in full; of two that differ, the worse counts.

It runs in a session of its own, so that all of it can be ended, and without our secrets.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gates.analyses.command import OUTCOMES, Answer, CommandGate, Question, Reply, answer_in
from gates.errors import NotAnswered
from tidegate.core.access import scrubbed
from tidegate.core.children import Child, variables_for
from tidegate.core.text import json_of

OUTCOME_OF = {0: "pass", 1: "fail", 3: "inconclusive"}
KEPT = "what it said is kept as commands/STEP.GATE.txt of the delivery"
MOST_BYTES = 16 << 20
"""Of an answer; more is none."""
KEPT_CHARACTERS = 64 << 10
"""The end of each output, for a person."""
NOT_THERE = 4
"""Exit code of a command that may have an answer when it is asked again."""
LONGER = "give it more time by `within`, or fewer questions"
SHORTER = "let it write what is no answer to a file of its own"
PATIENCE_SECONDS = 5.0
"""For a program that is told to end."""


@dataclass(frozen=True)
class _Ended:
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


async def ask_command(
    settings: CommandGate, question: Question, seconds: float, *, folder: Path, environment: Mapping[str, str]
) -> Reply:
    """Run the command once, in `folder`, and read its answer.

    Args:
        settings: what to run.
        question: what is asked.
        seconds: until it is ended.
        folder: the spec's.
        environment: of it the command gets what `tidegate.core.children` says, and `variables` by name.

    Raises:
        NotAnswered: it cannot be started, takes too long, says too much, or gives no answer that can be read.
    """
    secrets = _secrets(settings, environment)
    usual = variables_for(Child.COMMAND, environment)
    process = await _started(settings.run, folder, {**usual, **secrets, **question.variables()})
    try:
        async with asyncio.timeout(seconds):
            said, complaints = await _talked(process, question.model_dump_json().encode())
            code = await process.wait()
    except TimeoutError as error:
        raise NotAnswered(f"no answer within {seconds:.0f} s", again=False, hint=LONGER) from error
    finally:
        await _end(process)
    # First of all: what follows ends up in verdicts, errors and kept files.
    texts = (scrubbed(text.decode(errors="replace"), secrets.values()) for text in (said, complaints))
    ended = _Ended(code, *texts)
    return Reply(answer=_answer(ended), output=ended.shown)


def _secrets(settings: CommandGate, environment: Mapping[str, str]) -> dict[str, str]:
    missing = [name for name in settings.variables if name not in environment]
    if missing:
        hint = "set it where the step runs, or leave it out of `variables`"
        raise NotAnswered(f"the variable {missing[0]} is not set", again=False, hint=hint)
    return {name: environment[name] for name in settings.variables}


async def _started(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Process:
    program, *arguments = words
    try:
        return await asyncio.create_subprocess_exec(
            program,
            *arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        hint = "the first word of `run` must be a program where the step runs"
        raise NotAnswered(f"{program} cannot be run: {error.strerror}", again=False, hint=hint) from error


async def _talked(process: Process, told: bytes) -> tuple[bytes, bytes]:
    """Hand it its input, and read both outputs to their ends."""
    assert process.stdin and process.stdout and process.stderr, "started with pipes"

    async def tell(stream: asyncio.StreamWriter) -> None:
        # Who does not read it need not.
        with suppress(ConnectionError):
            stream.write(told)
            await stream.drain()
        stream.close()

    _, said, errors = await asyncio.gather(
        tell(process.stdin), _read(process.stdout, whole=True), _read(process.stderr, whole=False)
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


async def _end(process: Process) -> None:
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


def _answer(ended: _Ended) -> Answer:
    code, words, output = ended.code, ended.last_words, ended.shown
    if code == NOT_THERE:
        raise NotAnswered(f"something that it needs was not there{words}", again=True, hint=KEPT, output=output)
    if code not in OUTCOME_OF:
        message = f"{ended.how}, which says nothing of the version{words}"
        raise NotAnswered(message, again=False, hint=KEPT, output=output)
    try:
        document = _document(ended.said)
    except ValueError as error:
        raise NotAnswered(f"its answer cannot be read: {error}", again=False, hint=KEPT, output=output) from error
    by_code = Answer(outcome=OUTCOME_OF[code], reason=f"exit code {code}{words}")
    if document is None:
        return by_code
    agrees = document.outcome is not None and OUTCOMES[document.outcome] >= OUTCOMES[OUTCOME_OF[code]]
    return document if code == 0 or agrees else by_code


def _document(said: str) -> Answer | None:
    """The JSON document that the output is, or ends with; None where there is none."""
    text = said.strip()
    last = text.splitlines()[-1].strip() if text else ""
    for candidate in dict.fromkeys((text, last)):
        if candidate.startswith("{") and candidate.endswith("}") and _is_one(candidate):
            return answer_in(candidate)
    if last.startswith("{"):
        raise ValueError("it begins as JSON and is none")
    return None


def _is_one(text: str) -> bool:
    try:
        json_of(text)
    except ValueError:
        return False
    return True
