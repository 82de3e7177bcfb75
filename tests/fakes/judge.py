"""A judge of known quality: it scores by what the answers say of themselves, with the faults it is given."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from gates.judge.rubric import NAMES, JudgeReply, JudgeRequest

DIMENSIONS = ("helpfulness", "accuracy", "coherence", "safety")


def an_answer(worth: float, words: str) -> str:
    """An answer worth so much, 0 to 1, to a question that has `words` in it."""
    return f"{' '.join([words] * 6)} worth {worth:.3f}"


def worth_of(question: str, answer: str) -> float:
    """What the answer says that it is worth; little when it answers another question."""
    words, _, worth = answer.rpartition(" worth ")
    return float(worth) if words.split(" ", 1)[0] in question else 0.1


class FakeJudge:
    """Scores by `worth_of`; `place_bias` goes to the first answer, `noise` to both, in standard deviations."""

    def __init__(
        self,
        *,
        place_bias: float = 0.0,
        noise: float = 0.0,
        seed: int = 0,
        worth: Callable[[str, str], float] = worth_of,
        says: Callable[[str], str] = str,
    ) -> None:
        """`says` may spoil the reply."""
        self.requests: list[JudgeRequest] = []
        self._place_bias, self._noise, self._worth, self._says = place_bias, noise, worth, says
        self._random = random.Random(seed)

    async def ask(self, request: JudgeRequest) -> JudgeReply:
        self.requests.append(request)
        return JudgeReply(text=self.reply(request.user))

    def reply(self, material: str) -> str:
        given = json.loads(material)
        scores = {}
        for name, bias in zip(NAMES, (self._place_bias, 0.0), strict=True):
            worth = self._worth(given["question"], given[name]) + bias + self._random.gauss(0, self._noise)
            scores[name] = dict.fromkeys(DIMENSIONS, round(min(1.0, max(0.0, worth)) * 20) / 20)
        return self._says(json.dumps({"reason": "as asked", **scores}))
