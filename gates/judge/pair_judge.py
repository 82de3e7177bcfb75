"""Puts pairs of answers to a judge, blinded, and the judge itself to its control.

Which arm stands first is drawn for every pair, so that a liking for a place is noise and no bias; on the
control's pairs both orders are asked, where it cancels exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from statistics import fmean

from gates.evidence.batch import Dimension, Score
from gates.judge.control import Label, side_by_side
from gates.judge.controlled import ControlledJudge, composite, draw
from gates.judge.rubric import DimensionScores, NoScore, Opinion, judge_request, opinion
from gates.judge.spec import Weight
from tidegate.core.model import Value


class ArmScores(Value):
    """One reply of a judge with the blinds taken off."""

    stable: DimensionScores
    canary: DimensionScores


class JudgedPair(Value):
    """What both answers to one prompt are worth."""

    stable: Score
    """Composite, 0 to 1; goes into `PairedReply.score`."""
    canary: Score
    stable_dimensions: DimensionScores
    canary_dimensions: DimensionScores
    asked: int
    """Opinions that this is the mean of."""


def unblind(opinion: Opinion, *, canary_first: bool) -> ArmScores:
    """Give each side of an opinion back to its arm."""
    if canary_first:
        return ArmScores(stable=opinion.second, canary=opinion.first)
    return ArmScores(stable=opinion.first, canary=opinion.second)


def drop(scores: ArmScores, weights: Mapping[Dimension, Weight]) -> float:
    """By how much the canary's composite is below stable's; -1 to 1."""
    return composite(scores.stable, weights) - composite(scores.canary, weights)


def settle(opinions: Sequence[ArmScores], weights: Mapping[Dimension, Weight], *, same_text: bool) -> JudgedPair:
    """The mean of one opinion or more; two answers of the same words get the same scores.

    Raises:
        ValueError: when there is no opinion.
    """
    stable = _mean([scores.stable for scores in opinions])
    canary = _mean([scores.canary for scores in opinions])
    # A difference between equal words is the judge's noise: known to be none of the canary's doing.
    if same_text:
        stable = canary = _mean([stable, canary])
    return JudgedPair(
        stable=composite(stable, weights),
        canary=composite(canary, weights),
        stable_dimensions=stable,
        canary_dimensions=canary,
        asked=len(opinions),
    )


def _mean(scores: Sequence[DimensionScores]) -> DimensionScores:
    if not scores:
        raise ValueError("no opinion to take the mean of")
    return {dimension: fmean(one[dimension] for one in scores) for dimension in scores[0]}


class PairJudge(ControlledJudge):
    """One judge of one comparison; may be asked of many pairs at once.

    The same seed and keys give the same orders and samples, in whichever order the pairs arrive.
    """

    def wants(self, key: str) -> bool:
        """Whether the pair that `key` names is in the sample; the others need not be given to `judge`."""
        return draw(self._seed, key, self._settings).judged

    async def judge(self, key: str, prompt: str, stable: str, canary: str) -> JudgedPair | NoScore:
        """Score both answers to one prompt; a pair drawn for the control is asked more than once.

        Never raises for what an endpoint does: a judge that is not there is a `NoScore`.
        """
        lot = draw(self._seed, key, self._settings)
        foil = self._foil(prompt, stable, lot) if lot.control else None
        self._remember(prompt, stable)
        first = await self._compare(prompt, stable, canary, canary_first=lot.canary_first)
        if isinstance(first, NoScore):
            return first
        opinions = [first]
        if lot.control:
            swapped, _ = await asyncio.gather(
                self._compare(prompt, stable, canary, canary_first=not lot.canary_first),
                self._tell(prompt, stable, foil, right_first=lot.canary_first),
            )
            opinions += self._repeat(first, swapped)
        return settle(opinions, self._settings.dimensions, same_text=stable == canary)

    async def learn(self, labels: Sequence[Label]) -> None:
        """Ask of every answer that a person has scored, before any of the versions' own."""
        pairs = enumerate(side_by_side(labels))
        await asyncio.gather(*(self._recall(f"label {number}", *pair) for number, pair in pairs))

    async def _recall(self, key: str, one: Label, other: Label) -> None:
        second_first = draw(self._seed, key, self._settings).canary_first
        scores = await self._compare(one.prompt, one.answer, other.answer, canary_first=second_first)
        if isinstance(scores, NoScore):
            return
        judged = [composite(side, self._settings.dimensions) for side in (scores.stable, scores.canary)]
        if one is other:
            self._control.labelled(one.score, sum(judged) / 2)
            return
        for label, score in zip((one, other), judged, strict=True):
            self._control.labelled(label.score, score)

    def _repeat(self, first: ArmScores, swapped: ArmScores | NoScore) -> list[ArmScores]:
        if isinstance(swapped, NoScore):
            return []
        weights = self._settings.dimensions
        self._control.repeated(drop(first, weights), drop(swapped, weights))
        return [swapped]

    async def _tell(self, prompt: str, right: str, foil: str | None, *, right_first: bool) -> None:
        if foil is None:
            return
        # The foil takes the canary's part: what it falls behind is what must be seen.
        scores = await self._compare(prompt, right, foil, canary_first=not right_first)
        if not isinstance(scores, NoScore):
            self._control.foiled(drop(scores, self._settings.dimensions))

    async def _compare(self, prompt: str, stable: str, canary: str, *, canary_first: bool) -> ArmScores | NoScore:
        """Ask once, blinded; every answer and non-answer is counted by the control."""
        first, second = (canary, stable) if canary_first else (stable, canary)
        request = judge_request(self._settings.rubric, self._dimensions, prompt, first, second)
        found = await self._asked(request, opinion, self._dimensions)
        if isinstance(found, NoScore):
            return found
        weights = self._settings.dimensions
        self._control.answered(first=composite(found.first, weights), second=composite(found.second, weights))
        return unblind(found, canary_first=canary_first)
