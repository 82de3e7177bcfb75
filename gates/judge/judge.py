"""Puts answers to a judge, blinded, and the judge itself to its control.

Both arms' answers to one prompt stand side by side; where no two versions answered the same prompt, an answer stands
alone, and the judge does not learn which arm gave it. Which arm stands first is drawn for every pair, so that a liking
for a place is noise and no bias; on the control's pairs both orders are asked, where it cancels exactly. An answer that
stands alone is asked of again with the dimensions in the other order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import TypedDict

from gates.evidence.batch import ArmName, Dimension, PodEvidence, Score
from gates.judge.control import Control, ControlReport, foil_of
from gates.judge.rubric import DimensionScores, JudgeClient, NoScoreReason, judge_request, scores_in
from gates.judge.spec import JudgeGate, Weight
from gates.text import similarity
from tidegate.core.errors import OutsideError
from tidegate.core.model import Value


class Lot(Value):
    """What chance decided for one question."""

    judged: bool
    """Whether it is in the sample."""
    control: bool
    """Whether it is asked again, swapped, and next to a foil."""
    swapped: bool
    """Whether the canary stands first, or the last dimension."""
    foil: float
    """Where in what is kept of other prompts the foil is taken from, and whether it pleads; 0 to 1, without 1."""


def draw(seed: int, key: str, settings: JudgeGate) -> Lot:
    """Draw for what `key` names; depends on nothing else, so that it is judged alike in any order."""
    random = Random(f"{seed}:{key}")
    return Lot(
        judged=random.random() < settings.sample,
        control=random.random() < settings.control.share,
        swapped=random.random() < 0.5,
        foil=random.random(),
    )


def composite(scores: DimensionScores, weights: Mapping[Dimension, Weight]) -> float:
    """The weighted mean over the dimensions that have a weight; 0 to 1."""
    total = sum(weights.values())
    mean = sum(weight * scores[dimension] for dimension, weight in weights.items()) / total
    # Rounding may leave a mean of ones a hair above 1, which is no score.
    return min(1.0, max(0.0, mean))


class JudgedAnswer(Value):
    """What one answer is worth."""

    score: Score
    """Composite, 0 to 1."""
    dimensions: DimensionScores


def settle(
    answers: Sequence[str], opinions: Sequence[Sequence[DimensionScores]], weights: Mapping[Dimension, Weight]
) -> tuple[JudgedAnswer, ...]:
    """The mean of one opinion or more on each answer; two answers of the same words get the same scores."""
    sides = [_mean(side) for side in zip(*opinions, strict=True)]
    # A difference between equal words is the judge's noise: known to be none of the canary's doing.
    if len(set(answers)) < len(answers):
        sides = [_mean(sides)] * len(answers)
    return tuple(JudgedAnswer(score=composite(side, weights), dimensions=side) for side in sides)


def _mean(scores: Sequence[DimensionScores]) -> DimensionScores:
    return {dimension: fmean(one[dimension] for one in scores) for dimension in scores[0]}


KEPT_FOR_FOILS = 32
"""Prompts with the stable arm's answers, in memory only."""
OTHER_PROMPT = 0.8
"""Word F1 below which it asks something else; "what is 3 times 4" and "what is 3 times 5" have just that."""
OTHER_ANSWER = 0.5
"""Word F1 below which an answer to another prompt is no answer to this one."""


class Judge:
    """One judge of one comparison; may be asked of many answers at once.

    The same seed and keys give the same orders and samples, in whichever order answers arrive.
    """

    def __init__(self, settings: JudgeGate, client: JudgeClient, *, seed: int) -> None:
        """Nothing is asked yet."""
        self._settings, self._client, self._seed = settings, client, seed
        self._control = Control(settings.control)
        self._others: deque[tuple[str, str]] = deque(maxlen=KEPT_FOR_FOILS)

    @property
    def control(self) -> ControlReport:
        """Whether the judge may be believed, as far as is known now."""
        return self._control.report()

    def wants(self, key: str) -> bool:
        """Whether what `key` names is in the sample; the others need not be given to `judge`."""
        return draw(self._seed, key, self._settings).judged

    async def judge(
        self, key: str, prompt: str, *answers: str, right: bool = True
    ) -> tuple[JudgedAnswer, ...] | NoScoreReason:
        """Score stable's and the canary's answer to one prompt, or one answer alone; those drawn for the control twice.

        Never raises for what an endpoint does: a judge that is not there is a reason for no score.

        Args:
            key: names the answers; what is drawn for them depends on nothing else.
            prompt: what they answer.
            answers: their texts.
            right: whether the first may stand for right answers in the control: one of the stable arm.
        """
        lot = draw(self._seed, key, self._settings)
        controlled = lot.control and right
        foil = self._foil(prompt, answers[0], lot) if controlled else None
        # Each prompt once: a popular one must not push the others out.
        if right and all(prompt != other for other, _ in self._others):
            self._others.append((prompt, answers[0]))
        first = await self._ask(prompt, answers, swapped=lot.swapped)
        if isinstance(first, NoScoreReason):
            return first
        opinions = [first]
        if controlled:
            again, _ = await asyncio.gather(
                self._ask(prompt, answers, swapped=not lot.swapped),
                self._tell(prompt, answers, first, foil, swapped=not lot.swapped),
            )
            if not isinstance(again, NoScoreReason):
                self._control.repeated(*([self._composite(side) for side in each] for each in (first, again)))
                opinions.append(again)
        return settle(answers, opinions, self._settings.dimensions)

    def _foil(self, prompt: str, right: str, lot: Lot) -> str | None:
        """Made of an answer to another prompt that shares few words with the right one; None when there is none yet."""
        wrong = [
            answer
            for other, answer in self._others
            if similarity(other, prompt) < OTHER_PROMPT and similarity(answer, right) < OTHER_ANSWER
        ]
        return foil_of(wrong, lot.foil)

    async def _tell(
        self, prompt: str, answers: Sequence[str], first: Sequence[DimensionScores], foil: str | None, *, swapped: bool
    ) -> None:
        if foil is None:
            return
        # The foil takes the canary's part: what it falls behind is what must be seen.
        found = await self._ask(prompt, (*answers[:-1], foil), swapped=swapped)
        if not isinstance(found, NoScoreReason):
            right = first if len(answers) == 1 else found
            self._control.foiled(self._composite(right[0]) - self._composite(found[-1]))

    async def _ask(
        self, prompt: str, answers: Sequence[str], *, swapped: bool
    ) -> tuple[DimensionScores, ...] | NoScoreReason:
        """Ask once, blinded; the scores are in the order of the answers, and the control hears of every reply."""
        dimensions, step = tuple(self._settings.dimensions), -1 if swapped else 1
        asked = dimensions[::step] if len(answers) == 1 else dimensions
        try:
            reply = await self._client.ask(judge_request(asked, prompt, answers[::step]))
        except OutsideError as error:
            self._control.asked(NoScoreReason.UNREACHABLE, error.message)
            return NoScoreReason.UNREACHABLE
        found = scores_in(reply, dimensions, answers=len(answers))
        self._control.asked(found if isinstance(found, NoScoreReason) else None)
        return found if isinstance(found, NoScoreReason) else found[::step]

    def _composite(self, scores: DimensionScores) -> float:
        return composite(scores, self._settings.dimensions)


class ScoresEvidence(TypedDict, total=False):
    """The part of a batch that scores fill."""

    arms: tuple[PodEvidence, ...]
    dimensions: Mapping[ArmName, Mapping[Dimension, tuple[float, ...]]]
    missing: Mapping[str, str]


class ScoredPairs:
    """A judge's scores on their way to become evidence: they wait until the judge has passed its control."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._scores: list[tuple[JudgedAnswer, ...]] = []

    async def ask(self, key: str, prompt: str, stable: str, canary: str) -> None:
        """Have both answers to one prompt scored, if the pair that `key` names is in the sample and says anything."""
        if self.judge.wants(key) and (stable.strip() or canary.strip()):
            self.add(await self.judge.judge(key, prompt, stable, canary))

    def add(self, *found: tuple[JudgedAnswer, ...] | NoScoreReason) -> None:
        """Keep what the judge said of stable's and the canary's answer, at once or apart, if both have scores."""
        sides = tuple(side for each in found if not isinstance(each, NoScoreReason) for side in each)
        self._scores += [sides] if len(sides) == len(ArmName) else []

    def drain(self) -> ScoresEvidence:
        """What came since the last call, as that of two pods, one to one: scores arrive long after a pair's times.

        An untrusted judge must not become evidence; its scores stay here, and the evidence says why they are missing.
        """
        if self.judge.control.ok is not True:
            return {"missing": {"judge": self.judge.control.reason}}
        scores, self._scores = self._scores, []
        if not scores:
            return {}
        by_arm = dict(zip(ArmName, zip(*scores, strict=True), strict=True))
        return {
            "arms": tuple(PodEvidence(arm=arm, scores=tuple(each.score for each in of)) for arm, of in by_arm.items()),
            "dimensions": {
                arm: {name: tuple(each.dimensions[name] for each in of) for name in of[0].dimensions}
                for arm, of in by_arm.items()
            },
        }
