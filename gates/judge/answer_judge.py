"""Puts single answers to a judge, where no two versions answered the same prompt, and the judge to its control.

The judge does not learn which arm answered. On the control's answers it is asked again, with the dimensions in another
order, and of a foil in the answer's place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import fmean

from gates.evidence.batch import Dimension, Score
from gates.judge.control import Label
from gates.judge.controlled import ControlledJudge, composite, draw
from gates.judge.rubric import DimensionScores, NoScore, answer_opinion, answer_request
from tidegate.core.model import Value


class JudgedAnswer(Value):
    """What one answer is worth."""

    score: Score
    """Composite, 0 to 1."""
    dimensions: DimensionScores


class AnswerJudge(ControlledJudge):
    """Scores each answer by itself."""

    async def judge(self, key: str, prompt: str, answer: str, *, right: bool) -> JudgedAnswer | NoScore:
        """Score an answer; one drawn for the control is asked more than once.

        Never raises for what an endpoint does: a judge that is not there is a `NoScore`.

        Args:
            key: names the answer; what is drawn for it depends on nothing else.
            prompt: what it answers.
            answer: its text.
            right: whether it may stand for right answers in the control: one of the stable arm.
        """
        lot = draw(self._seed, key, self._settings)
        controlled = lot.control and right
        foil = self._foil(prompt, answer, lot) if controlled else None
        if right:
            self._remember(prompt, answer)
        first = await self._score(prompt, answer, self._dimensions)
        if isinstance(first, NoScore) or not controlled:
            return first
        again, _ = await asyncio.gather(
            self._score(prompt, answer, self._dimensions[::-1]), self._tell(prompt, first, foil)
        )
        if isinstance(again, NoScore):
            return first
        self._control.asked_again(first.score, again.score)
        dimensions = {each: fmean((first.dimensions[each], again.dimensions[each])) for each in self._dimensions}
        return JudgedAnswer(score=composite(dimensions, self._settings.dimensions), dimensions=dimensions)

    async def learn(self, labels: Sequence[Label]) -> None:
        """Ask of every answer that a person has scored, before any of the versions' own."""
        scores = await asyncio.gather(*(self._score(each.prompt, each.answer, self._dimensions) for each in labels))
        for label, found in zip(labels, scores, strict=True):
            if not isinstance(found, NoScore):
                self._control.labelled(label.score, found.score)

    async def _tell(self, prompt: str, right: JudgedAnswer, foil: str | None) -> None:
        if foil is None:
            return
        found = await self._score(prompt, foil, self._dimensions)
        if not isinstance(found, NoScore):
            self._control.foiled(right.score - found.score)

    async def _score(self, prompt: str, answer: str, dimensions: Sequence[Dimension]) -> JudgedAnswer | NoScore:
        request = answer_request(self._settings.rubric, dimensions, prompt, answer)
        found = await self._asked(request, answer_opinion, dimensions)
        if isinstance(found, NoScore):
            return found
        score = composite(found, self._settings.dimensions)
        # An answer that stands alone has no place to be liked for.
        self._control.answered(first=score, second=score)
        return JudgedAnswer(score=score, dimensions=found)
