"""offline: questions with known answers, asked of the champion and of the challenger, scored side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gates.evaluate import judge
from gates.golden import GoldenPrompt, score_answers
from gates.model import AnswerScores, Outcome, Scores
from gates.spec import QualityGate
from pipelines.context import Context, both_arms
from pipelines.errors import Stopped
from pipelines.model import ENDING_OF, Step
from pipelines.prompts import golden_set
from rollouts.model import Arm

CONCURRENT_QUESTIONS = 4
"""For each arm: enough to batch, few enough not to crowd out users."""


async def offline(context: Context, step: Step) -> None:
    """Ask, score, judge once: the golden set is all the evidence there will be.

    Raises:
        Stopped: unless the quality gate passes.
    """
    settings = context.spec.gates.quality
    assert settings is not None, "the spec was read without settings for the quality gate"
    golden = golden_set(context.spec, context.folder)
    stable, canary = both_arms(await context.fleet(step).observe())
    asked = _Asked(context, step, total=2 * len(golden))
    # Both at once, so that whatever slows the machine meets both.
    scores = await asyncio.gather(*(asked.scores(arm, golden, settings) for arm in (stable, canary)))
    verdict = judge(settings, AnswerScores(stable=scores[0], canary=scores[1]), deadline_passed=True)
    context.journal.verdict(step, verdict)
    if verdict.outcome is not Outcome.PASS:
        raise Stopped(ENDING_OF[verdict.outcome], f"gate {verdict.gate}: {verdict.reason}")


class _Asked:
    """Asks a golden set and says how far it is."""

    def __init__(self, context: Context, step: Step, *, total: int) -> None:
        self._context = context
        self._step = step
        self._total = total
        self._done = 0

    async def scores(self, arm: Arm, golden: Sequence[GoldenPrompt], settings: QualityGate) -> Scores:
        """All answers of one arm, scored."""
        limit = asyncio.Semaphore(CONCURRENT_QUESTIONS)
        texts = await asyncio.gather(*(self._answer(arm, entry, limit) for entry in golden))
        answers = {entry.prompt: text for entry, text in zip(golden, texts, strict=True)}
        return score_answers(tuple(golden), answers, settings.scorer)

    async def _answer(self, arm: Arm, entry: GoldenPrompt, limit: asyncio.Semaphore) -> str:
        context = self._context
        async with limit:
            answer = await context.chat.ask(arm.url, context.plan.name, entry.prompt, max_tokens=entry.max_tokens)
        self._done += 1
        context.journal.progress(self._step, "answers", self._done, self._total)
        return answer.text
