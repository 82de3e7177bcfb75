"""offline: questions with known answers, asked of the champion and of the challenger, scored side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from gates.answers.golden import GoldenPrompt, score_answers
from gates.answers.quality import judge_quality
from gates.errors import BadAnswer
from gates.model import AnswerScores, Outcome, Scores
from gates.spec import QualityGate, Scorer
from pipelines.blame import canary_is_asked
from pipelines.budget import OFFLINE, shares
from pipelines.context import Context, both_arms
from pipelines.errors import Stopped
from pipelines.model import ENDING_OF, Step
from pipelines.prompts import golden_set
from rollouts.model import Arm, Role
from tidegate.core.beside import beside
from tidegate.core.errors import OutsideError

Answered = TypeVar("Answered")
Ask = Callable[[Arm, GoldenPrompt], Awaitable[Answered]]

CONCURRENT_QUESTIONS = 4
"""For each arm: enough to batch, few enough not to crowd out users."""
SHOWN = 60
"""Of a question that none answers, as many characters."""


async def offline(context: Context, step: Step) -> None:
    """Ask, score, judge once: the golden set is all the evidence there will be.

    Raises:
        Stopped: unless the quality gate passes, and when the canary fails to answer what the champion answers.
        OutsideError: an engine was not reached, or none answers a question.
    """
    settings = context.spec.gates.quality
    assert settings is not None, "the spec was read without settings for the quality gate"
    golden = golden_set(context.spec, context.folder)
    stable, canary = both_arms(await context.fleet(step).observe())
    asked = _Asked(context, step, stable, total=2 * len(golden))
    # Both at once, so that whatever slows the machine meets both.
    scores = await asyncio.gather(*(asked.scores(arm, golden, settings) for arm in (stable, canary)))
    rollback = context.spec.gates.budget.rollback * shares(context.spec)[OFFLINE]
    verdict = judge_quality(settings, AnswerScores(stable=scores[0], canary=scores[1]), rollback=rollback)
    context.journal.verdict(step, verdict)
    if verdict.outcome is not Outcome.PASS:
        raise Stopped(ENDING_OF[verdict.outcome], f"gate {verdict.gate}: {verdict.reason}")


class _Asked:
    """Asks a golden set and says how far it is."""

    def __init__(self, context: Context, step: Step, stable: Arm, *, total: int) -> None:
        self._context = context
        self._step = step
        self._stable = stable
        self._total = total
        self._done = 0

    async def scores(self, arm: Arm, golden: Sequence[GoldenPrompt], settings: QualityGate) -> Scores:
        """All answers of one arm, scored; what is scored by likelihood needs no answer."""
        limit = asyncio.Semaphore(CONCURRENT_QUESTIONS)
        likely = [entry for entry in golden if entry.scored_by(settings.scorer) is Scorer.LOG_LIKELIHOOD]
        said = [entry for entry in golden if entry not in likely]
        texts = await asyncio.gather(*(self._limited(limit, self._answer, arm, entry) for entry in said))
        logprobs = await asyncio.gather(*(self._limited(limit, self._logprob, arm, entry) for entry in likely))
        return await beside(
            score_answers,
            tuple(golden),
            {entry.prompt: text for entry, text in zip(said, texts, strict=True)},
            settings.scorer,
            mean_logprobs={entry.prompt: value for entry, value in zip(likely, logprobs, strict=True)},
            embedder=self._context.readers.embedder,
        )

    async def _limited(self, limit: asyncio.Semaphore, ask: Ask[Answered], arm: Arm, entry: GoldenPrompt) -> Answered:
        async with limit:
            answer = await (self._of_canary(ask, arm, entry) if arm.role is Role.CANARY else ask(arm, entry))
        self._done += 1
        self._context.journal.progress(self._step, "answers", self._done, self._total)
        return answer

    async def _of_canary(self, ask: Ask[Answered], canary: Arm, entry: GoldenPrompt) -> Answered:
        """A question that no version can answer, such as one that is too long, is not this version's fault."""
        async with canary_is_asked(self._context, self._step, "quality"):
            try:
                return await ask(canary, entry)
            except BadAnswer as error:
                await self._ask_champion_too(ask, entry, error)
                raise

    async def _ask_champion_too(self, ask: Ask[Any], entry: GoldenPrompt, error: BadAnswer) -> None:
        try:
            await ask(self._stable, entry)
        except BadAnswer:
            raise OutsideError(
                f"neither version answers {entry.prompt[:SHOWN]!r}: {error.message}",
                hint="look at the golden set, and at the engines' logs",
            ) from error

    async def _answer(self, arm: Arm, entry: GoldenPrompt) -> str:
        context = self._context
        answer = await context.chat.ask(arm.url, context.plan.name, entry.prompt, max_tokens=entry.max_tokens)
        return answer.text

    async def _logprob(self, arm: Arm, entry: GoldenPrompt) -> float:
        likelihood = self._context.readers.likelihood
        assert likelihood is not None, "the golden set was read without anybody to ask for likelihoods"
        return await likelihood.mean_logprob(arm.url, self._context.plan.name, entry.prompt, entry.expected)
