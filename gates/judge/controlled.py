"""What every judge of answers has: lots that chance draws, composite scores, a control that hears of all it says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

from gates.evidence.batch import Dimension
from gates.judge.control import Control, ControlReport, Label, foil_of
from gates.judge.rubric import DimensionScores, JudgeClient, JudgeReply, JudgeRequest, NoScore, NoScoreReason
from gates.judge.spec import JudgeGate, Weight
from gates.text import similarity
from tidegate.core.errors import OutsideError
from tidegate.core.model import Value

Read = TypeVar("Read")


class Lot(Value):
    """What chance decided for one pair."""

    judged: bool
    """Whether it is in the sample."""
    control: bool
    """Whether it is asked again, swapped, and next to a foil."""
    canary_first: bool
    foil: float
    """Where in what is kept of other prompts the foil is taken from, and whether it pleads; 0 to 1, without 1."""


def draw(seed: int, key: str, settings: JudgeGate) -> Lot:
    """Draw for the pair that `key` names; depends on nothing else, so that a pair is judged alike in any order."""
    random = Random(f"{seed}:{key}")
    return Lot(
        judged=random.random() < settings.sample,
        control=random.random() < settings.control.share,
        canary_first=random.random() < 0.5,
        foil=random.random(),
    )


def composite(scores: DimensionScores, weights: Mapping[Dimension, Weight]) -> float:
    """The weighted mean over the dimensions that have a weight; 0 to 1."""
    total = sum(weights.values())
    mean = sum(weight * scores[dimension] for dimension, weight in weights.items()) / total
    # Rounding may leave a mean of ones a hair above 1, which is no score.
    return min(1.0, max(0.0, mean))


KEPT_FOR_FOILS = 32
"""Prompts with the stable arm's answers, in memory only."""
OTHER_PROMPT = 0.8
"""Word F1 below which it asks something else; "what is 3 times 4" and "what is 3 times 5" have just that."""
OTHER_ANSWER = 0.5
"""Word F1 below which an answer to another prompt is no answer to this one."""


def foil_for(others: Iterable[tuple[str, str]], prompt: str, right: str, lot: Lot) -> str | None:
    """Made of an answer to another prompt that shares few words with the right one; None when there is none yet."""
    wrong = [
        answer
        for other, answer in others
        if similarity(other, prompt) < OTHER_PROMPT and similarity(answer, right) < OTHER_ANSWER
    ]
    return foil_of(wrong, lot.foil)


class ControlledJudge(ABC):
    """One judge of one comparison; may be asked of many answers at once."""

    def __init__(self, settings: JudgeGate, client: JudgeClient, *, seed: int) -> None:
        """Nothing is asked yet."""
        self._settings = settings
        self._client = client
        self._seed = seed
        self._dimensions = tuple(settings.dimensions)
        self._control = Control(settings.control)
        self._others: deque[tuple[str, str]] = deque(maxlen=KEPT_FOR_FOILS)

    @property
    def control(self) -> ControlReport:
        """Whether the judge may be believed, as far as is known now."""
        return self._control.report()

    @abstractmethod
    async def learn(self, labels: Sequence[Label]) -> None:
        """Ask of every answer that a person has scored, before any of the versions' own."""

    def _foil(self, prompt: str, right: str, lot: Lot) -> str | None:
        return foil_for(self._others, prompt, right, lot)

    def _remember(self, prompt: str, right: str) -> None:
        # Each prompt once: a popular one must not push the others out.
        if all(prompt != other for other, _ in self._others):
            self._others.append((prompt, right))

    async def _asked(
        self,
        request: JudgeRequest,
        read: Callable[[JudgeReply, Sequence[Dimension]], Read | NoScore],
        dimensions: Sequence[Dimension],
    ) -> Read | NoScore:
        """Ask once, and read the reply; the control hears of every non-answer."""
        try:
            found = read(await self._client.ask(request), dimensions)
        except OutsideError as error:
            self._control.silent(NoScoreReason.UNREACHABLE, error.message)
            return NoScore(why=NoScoreReason.UNREACHABLE)
        if isinstance(found, NoScore):
            self._control.silent(found.why)
        return found
