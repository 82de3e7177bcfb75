"""Asks whether a judge scores the canary's answers lower than stable's."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping

import numpy as np

from gates.evalues.paired import Lower
from gates.evidence import Arm, Batch
from gates.judge.spec import Dimension
from gates.questions.base import Question
from gates.questions.histogram import pods_of

MOST_WAITING = 1000
"""Scores of one arm that wait for one of the other."""


class ScoresQuestion(Question):
    """Scores of both arms, pair by pair: of the same prompt where there are pairs, else one to one as they come."""

    process: Lower
    worse = "that its answers are worse"
    sample = "pairs"

    def __init__(self, *, max_drop: float, tolerance: float, needed: int) -> None:
        """Differences of two means of scores in 0..1."""
        super().__init__("score", needed=needed)
        self._max_drop = max_drop
        self.process = Lower(max_drop=max_drop, tolerance=tolerance)
        self._waiting: dict[Arm, deque[float]] = {arm: deque(maxlen=MOST_WAITING) for arm in Arm}
        self._count, self._totals = 0, {Arm.STABLE: 0.0, Arm.CANARY: 0.0}
        self._dimensions = _Dimensions()

    def take(self, batch: Batch, seconds: float) -> None:
        self.missing = batch.missing.get("judge", "")
        pairs = [
            (pair.stable.score, pair.canary.score)
            for pair in batch.pairs
            if pair.stable and pair.canary and pair.stable.score is not None and pair.canary.score is not None
        ]
        for arm in Arm:
            self._waiting[arm].extend(score for pod in pods_of(batch, arm) for score in pod.scores)
        self._dimensions.take(batch)
        stable, canary = self._waiting[Arm.STABLE], self._waiting[Arm.CANARY]
        pairs += [(stable.popleft(), canary.popleft()) for _ in range(min(len(stable), len(canary)))]
        if not pairs:
            return
        scores = np.asarray(pairs)
        self._count += len(pairs)
        self._totals[Arm.STABLE] += float(scores[:, 0].sum())
        self._totals[Arm.CANARY] += float(scores[:, 1].sum())
        self.process.feed(scores[:, 0] - scores[:, 1], seconds)

    def restart(self) -> None:
        self._count, self._totals = 0, {Arm.STABLE: 0.0, Arm.CANARY: 0.0}
        self._dimensions = _Dimensions()
        self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return self._count

    def describe(self) -> str:
        if not self._count:
            return f"no scores of both arms: {self.missing}" if self.missing else "no scores of both arms"
        canary, stable = (self._totals[arm] / self._count for arm in (Arm.CANARY, Arm.STABLE))
        return (
            f"canary scores {canary:.2f} against {stable:.2f} on stable over {self._count:,} pairs "
            f"({canary - stable:+z.2f}, allowed {-self._max_drop:+g})"
        )

    def numbers(self) -> Mapping[str, float]:
        if not self._count:
            return {"pairs": 0.0}
        means = {f"{arm}_mean_score": self._totals[arm] / self._count for arm in (Arm.CANARY, Arm.STABLE)}
        return means | {"pairs": float(self._count)}

    def beside(self) -> Mapping[str, float]:
        return self._dimensions.means()


class _Dimensions:
    """The means of what both arms' scores are composed of."""

    def __init__(self) -> None:
        self._totals: defaultdict[tuple[Arm, Dimension], float] = defaultdict(float)
        self._answers: Counter[tuple[Arm, Dimension]] = Counter()

    def take(self, batch: Batch) -> None:
        for arm, dimensions in batch.dimensions.items():
            for dimension, scores in dimensions.items():
                self._totals[arm, dimension] += sum(scores)
                self._answers[arm, dimension] += len(scores)

    def means(self) -> dict[str, float]:
        """By arm and dimension, as `canary_accuracy_score`."""
        return {
            f"{arm}_{dimension}_score": self._totals[arm, dimension] / answers
            for (arm, dimension), answers in self._answers.items()
            if answers
        }
