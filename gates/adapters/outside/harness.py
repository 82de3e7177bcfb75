"""Asks lm-evaluation-harness, or a program that is called as it is: once for each arm that it has not asked before.

The program hears of one arm alone, and of nothing by which two deliveries differ: what is kept of an engine would be
another engine's otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gates.adapters.outside.harness_files import evaluation_in
from gates.adapters.outside.kept_evaluations import KeptEvaluations, evaluation_key
from gates.adapters.outside.process import NOT_THERE, EndedProgram, Programs
from gates.analyses.outside.answer import Answer, AskedArm, Question, Reply
from gates.analyses.outside.evaluation import Evaluation, difference, pairs_of
from gates.analyses.outside.evaluation_spec import EvalGate
from gates.errors import NotAnswered
from tidegate.core.threads import call_in_thread

KEPT = "what it said is kept as outside/STEP.GATE.txt of the delivery"
INTERFACES = {
    "completions": ("local-completions", "/v1/completions"),
    "chat": ("local-chat-completions", "/v1/chat/completions"),
}
"""The harness's name of each, and its address below the arm's."""


@dataclass(frozen=True)
class _Asked:
    """What came of one arm."""

    role: str
    arm: AskedArm
    key: str
    """Under which it is kept."""
    evaluation: Evaluation
    output: str = ""
    """Of the program; empty where the evaluation was kept from before."""

    @property
    def shown(self) -> str:
        count = len(self.evaluation.questions)
        said = self.output or f"{count} questions, as it answered them before"
        return f"{self.role}, version {self.arm.version}: {said}"


class AskedHarness:
    """An `OutsideSource`: one process for each arm, one after the other."""

    def __init__(self, settings: EvalGate, folder: Path, environment: Mapping[str, str], kept: KeptEvaluations) -> None:
        """`folder` is the spec's; what the program gets of `environment` is what `tidegate.core.children` says."""
        self._settings, self._folder, self._kept = settings, folder, kept
        self._programs = Programs(folder, environment, settings.variables)

    async def ask(self, question: Question, *, seconds: float) -> Reply:
        """As `OutsideSource`."""
        end = asyncio.get_running_loop().time() + seconds
        arms = {"stable": question.stable, "canary": question.canary}
        asked = [await self._known(role, arm, question.model, end) for role, arm in arms.items()]
        if difference(*(each.evaluation for each in asked)):
            # What is kept is of another day, and may be of other questions.
            asked = [
                each if each.output else await self._found(each.role, each.arm, each.key, question.model, end)
                for each in asked
            ]
        output = "\n".join(each.shown for each in asked)
        stable, canary = (each.evaluation for each in asked)
        if why := difference(stable, canary):
            raise NotAnswered(why, again=False, hint="ask both arms the same questions", output=output)
        return Reply(answer=Answer(pairs=pairs_of(stable, canary)), output=output)

    async def _known(self, role: str, arm: AskedArm, model: str, end: float) -> _Asked:
        key = await call_in_thread(evaluation_key, arm, model, self._settings, self._folder)
        kept = await call_in_thread(self._kept.find, key)
        return _Asked(role, arm, key, kept) if kept else await self._found(role, arm, key, model, end)

    async def _found(self, role: str, arm: AskedArm, key: str, model: str, end: float) -> _Asked:
        """Ask, and keep what is whole."""
        with TemporaryDirectory(prefix="tidegate-eval-") as folder:
            left = max(end - asyncio.get_running_loop().time(), 0.0)
            ended = await self._programs.run(self._words(arm, model, folder), seconds=left, more={}, whole=False)
            _refuse(role, ended)
            try:
                evaluation = await call_in_thread(evaluation_in, Path(folder), self._settings)
            except ValueError as error:
                message = f"what it found of {role} cannot be read: {error}"
                raise NotAnswered(message, again=False, hint=KEPT, output=ended.shown) from error
        try:
            await call_in_thread(self._kept.keep, key, evaluation)
        except OSError as error:
            # It is as good as any; the next delivery asks again.
            return _Asked(
                role, arm, key, evaluation, f"{ended.shown}\nnot kept for the next delivery: {error.strerror}"
            )
        return _Asked(role, arm, key, evaluation, ended.shown)

    def _words(self, arm: AskedArm, model: str, folder: str) -> Sequence[str]:
        settings = self._settings
        interface, path = INTERFACES[settings.api]
        own = {"model": model, "base_url": f"{arm.url}{path}"}
        arguments = ",".join(f"{name}={value}" for name, value in {**own, **settings.model_args}.items())
        limit = () if settings.limit is None else ("--limit", str(settings.limit))
        return (
            *settings.run,
            *("--model", interface, "--model_args", arguments, "--tasks", settings.task),
            *limit,
            *settings.arguments,
            *("--log_samples", "--output_path", folder),
        )


def _refuse(role: str, ended: EndedProgram) -> None:
    words, output = ended.last_words, ended.shown
    if ended.code == NOT_THERE:
        message = f"something that it needs of {role} was not there{words}"
        raise NotAnswered(message, again=True, hint=KEPT, output=output)
    if ended.code != 0:
        message = f"asking {role} {ended.how}, which says nothing of the version{words}"
        raise NotAnswered(message, again=False, hint=KEPT, output=output)
