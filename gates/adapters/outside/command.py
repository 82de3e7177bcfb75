"""Asks a command: the question on its standard input and in its environment, the answer on its standard output.

Exit codes are tidegate's own: 0 pass, 1 fail, 3 inconclusive, 4 something outside was not there. A JSON document, alone
on the standard output or as its last line, is the answer in full; of two that differ, the worse counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gates.adapters.outside.process import NOT_THERE, EndedProgram, Programs
from gates.analyses.outside.answer import OUTCOMES, Answer, Question, Reply, answer_in
from gates.analyses.outside.spec import CommandGate
from gates.errors import NotAnswered
from tidegate.core.text import json_of

OUTCOME_OF = {0: "pass", 1: "fail", 3: "inconclusive"}
KEPT = "what it said is kept as outside/STEP.GATE.txt of the delivery"


class AskedCommand:
    """An `OutsideSource`: one process for each question."""

    def __init__(self, settings: CommandGate, folder: Path, environment: Mapping[str, str]) -> None:
        """`folder` is the spec's; what the command gets of `environment` is what `tidegate.core.children` says."""
        self._settings, self._programs = settings, Programs(folder, environment, settings.variables)

    async def ask(self, question: Question, *, seconds: float) -> Reply:
        """As `OutsideSource`."""
        told, facts = question.model_dump_json().encode(), question.variables()
        ended = await self._programs.run(self._settings.run, seconds=seconds, more=facts, told=told)
        return Reply(answer=_answer(ended), output=ended.shown)


def _answer(ended: EndedProgram) -> Answer:
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
