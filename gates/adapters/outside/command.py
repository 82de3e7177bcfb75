"""Asks a command: the question on its standard input and in its environment, the answer on its standard output.

Exit codes are tidegate's own: 0 pass, 1 fail, 3 inconclusive, 4 something outside was not there. A JSON document, alone
on the standard output or as its last line, is the answer in full; of two that differ, the worse counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gates.adapters.outside.kept import KEPT_CHARACTERS, MOST_BYTES, masked
from gates.analyses.outside.answer import OUTCOMES, Answer, Question, Reply, answer_in
from gates.analyses.outside.spec import CommandGate
from gates.errors import NotAnswered
from tidegate.core.children import Child, variables_for

OUTCOME_OF = {0: "pass", 1: "fail", 3: "inconclusive"}
NOT_THERE = 4
"""Exit code of a command that may have an answer when it is asked again."""
KEPT = "what it said is kept as outside/STEP.GATE.txt of the delivery"
LONGER = "give it more time by `within`, or fewer questions"
SHORTER = "let it write what is no answer to a file of its own"
PATIENCE_SECONDS = 5.0
"""For a command that is told to end."""


class AskedCommand:
    """An `OutsideSource`: one process for each question, in a session of its own, so that all of it can be ended."""

    def __init__(self, settings: CommandGate, folder: Path, environment: Mapping[str, str]) -> None:
        """`folder` is the spec's; what the command gets of `environment` is what `tidegate.core.children` says."""
        self._settings, self._folder, self._environment = settings, folder, environment

    async def ask(self, question: Question, *, seconds: float) -> Reply:
        """As `OutsideSource`."""
        secrets = self._secrets()
        usual = variables_for(Child.COMMAND, self._environment)
        process = await self._started({**usual, **secrets, **question.variables()})
        try:
            async with asyncio.timeout(seconds):
                told, complaints = await _talked(process, question.model_dump_json().encode())
                code = await process.wait()
        except TimeoutError as error:
            raise NotAnswered(f"no answer within {seconds:.0f} s", again=False, hint=LONGER) from error
        finally:
            await _ended(process)
        # First of all: what follows ends up in verdicts, errors and kept files.
        said, errors = (masked(text.decode(errors="replace"), secrets.values()) for text in (told, complaints))
        return Reply(answer=self._answer(code, said, errors), output=_shown(code, said, errors))

    def _secrets(self) -> dict[str, str]:
        missing = [name for name in self._settings.variables if name not in self._environment]
        if missing:
            hint = "set it where the step runs, or leave it out of `variables`"
            raise NotAnswered(f"the variable {missing[0]} is not set", again=False, hint=hint)
        return {name: self._environment[name] for name in self._settings.variables}

    async def _started(self, environment: Mapping[str, str]) -> Process:
        program, *arguments = self._settings.run
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

    def _answer(self, code: int, said: str, errors: str) -> Answer:
        words, output = _last_words(errors), _shown(code, said, errors)
        if code == NOT_THERE:
            raise NotAnswered(f"something that it needs was not there{words}", again=True, hint=KEPT, output=output)
        if code not in OUTCOME_OF:
            how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            raise NotAnswered(f"{how}, which says nothing of the version{words}", again=False, hint=KEPT, output=output)
        try:
            document = _document(said)
        except ValueError as error:
            raise NotAnswered(f"its answer cannot be read: {error}", again=False, hint=KEPT, output=output) from error
        by_code = Answer(outcome=OUTCOME_OF[code], reason=f"exit code {code}{words}")
        if document is None:
            return by_code
        agrees = document.outcome is not None and OUTCOMES[document.outcome] >= OUTCOMES[OUTCOME_OF[code]]
        return document if code == 0 or agrees else by_code


async def _talked(process: Process, question: bytes) -> tuple[bytes, bytes]:
    """Hand it the question, and read both outputs to their ends."""
    assert process.stdin and process.stdout and process.stderr, "started with pipes"

    async def tell(stream: asyncio.StreamWriter) -> None:
        # Who does not read it need not.
        with suppress(ConnectionError):
            stream.write(question)
            await stream.drain()
        stream.close()

    _, told, errors = await asyncio.gather(
        tell(process.stdin), _read(process.stdout, whole=True), _read(process.stderr, whole=False)
    )
    return told, errors


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
        json.loads(text)
    except ValueError:
        return False
    return True


def _last_words(errors: str) -> str:
    lines = errors.strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""


def _shown(code: int, said: str, errors: str) -> str:
    texts = {"standard output": said, "standard error": errors}
    parts = (f"{name}:\n{text[-KEPT_CHARACTERS:].rstrip()}" for name, text in texts.items() if text.strip())
    return "\n".join([f"exit code {code}", *parts])
