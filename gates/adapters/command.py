"""Asks a command: the question in its environment, the answer by its exit code and the last line of its output.

Exit codes are tidegate's own: 0 pass, 1 fail, 3 inconclusive, 4 something outside was not there. A last line that is
JSON has the reason and numbers too; where it and the code differ, the worse counts.

It runs in a session of its own, so that all of it can be ended, and without our secrets.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from gates.analyses.command import Answer, CommandGate, Question, Reply
from gates.errors import NotAnswered
from gates.model import GateOutcome
from tidegate.core.access import scrubbed
from tidegate.core.children import Child, variables_for

OUTCOME_OF = {0: GateOutcome.PASS, 1: GateOutcome.FAIL, 3: GateOutcome.INCONCLUSIVE}
KEPT = "what it said is kept as commands/STEP.GATE.txt of the delivery"
KEPT_BYTES = 64 << 10
"""The end of each output. Twice as much is read, and cut once secrets are out: half of one would be found by nobody."""
NOT_THERE = 4
"""Exit code of a command that may have an answer when it is asked again."""
PATIENCE_SECONDS = 5.0
"""For a program that is told to end."""


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
        NotAnswered: it cannot be started, takes too long, or gives no answer that can be read.
    """
    if missing := [name for name in settings.variables if name not in environment]:
        hint = "set it where the step runs, or leave it out of `variables`"
        raise NotAnswered(f"the variable {missing[0]} is not set", again=False, hint=hint)
    secrets = {name: environment[name] for name in settings.variables}
    told = {**variables_for(Child.COMMAND, environment), **secrets, **question.variables()}
    try:
        process = await asyncio.create_subprocess_exec(
            *settings.run, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=folder, env=told, start_new_session=True
        )
    except OSError as error:
        hint = "the first word of `run` must be a program where the step runs"
        message = f"{settings.run[0]} cannot be run: {error.strerror}"
        raise NotAnswered(message, again=False, hint=hint) from error
    try:
        async with asyncio.timeout(seconds):
            outputs = await asyncio.gather(_end_of(process.stdout), _end_of(process.stderr))
            code = await process.wait()
    except TimeoutError as error:
        hint = "give it more time by `within`, or fewer questions"
        raise NotAnswered(f"no answer within {seconds:.0f} s", again=False, hint=hint) from error
    finally:
        await _end(process)
    if len(outputs[0].rstrip().rpartition(b"\n")[2]) > KEPT_BYTES:
        # Cut it would be no JSON any more, and the exit code alone would count.
        raise NotAnswered(f"its last line has more than {KEPT_BYTES >> 10} KiB", again=False, hint="write less into it")
    # First of all: what follows ends up in verdicts, errors and kept files.
    texts = (scrubbed(text.decode(errors="replace"), secrets.values()) for text in outputs)
    said, errors = (text.strip()[-KEPT_BYTES:] for text in texts)
    parts = {"standard output": said, "standard error": errors}
    kept = "\n".join([f"exit code {code}", *(f"{name}:\n{text}" for name, text in parts.items() if text)])
    return Reply(answer=_answer(code, _last_line(said), _last_line(errors), kept), output=kept)


async def _end_of(stream: asyncio.StreamReader | None) -> bytes:
    found = b""
    while stream and (part := await stream.read(1 << 16)):
        found = (found + part)[-2 * KEPT_BYTES :]
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
            await asyncio.gather(_end_of(process.stdout), _end_of(process.stderr))


def _last_line(text: str) -> str:
    return text.splitlines()[-1].strip() if text else ""


def _answer(code: int, said: str, error: str, kept: str) -> Answer:
    """By the code, and the last line of either output."""
    words = f": {error}" if error else ""
    if code == NOT_THERE:
        raise NotAnswered(f"something that it needs was not there{words}", again=True, hint=KEPT, output=kept)
    if code not in OUTCOME_OF:
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        raise NotAnswered(f"{how}, which says nothing of the version{words}", again=False, hint=KEPT, output=kept)
    by_code = Answer(outcome=OUTCOME_OF[code], reason=f"exit code {code}{words}")
    if not said.startswith("{"):
        return by_code
    try:
        answer = Answer.model_validate_json(said)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = "".join(f"{part}: " for part in first["loc"])
        message = f"its answer cannot be read: {where}{first['msg']}"
        raise NotAnswered(message, again=False, hint=KEPT, output=kept) from None
    return max(answer, by_code, key=lambda each: each.outcome)
