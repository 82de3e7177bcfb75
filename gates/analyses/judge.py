"""Asks whether a judge scores the canary's answers lower than stable's."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping

import numpy as np
import scipy

from gates.analyses.base import BOTH, Conditions, MetricTest, StageUse, TestedGate, pods_of
from gates.analyses.quality import NOTHING_SCORES
from gates.evidence.batch import ArmName, Batch
from gates.judge.spec import JudgeGate, JudgeMargins
from gates.stats.e_process import Array
from gates.stats.paired import PairedScoresProcess
from gates.traffic import Expected, Flow, expected_draws


class ScoresGate(JudgeMargins, TestedGate):
    """The canary's mean score, given by a judge, may be `max_drop` below stable's at most."""

    name = "judge"
    # What the endpoint is asked, and how, is not the statistics' concern.
    spec = JudgeGate
    stages = (StageUse("shadow", ("probe",), of_users=True), StageUse("canary", ("samples",)))
    usual_sources = ("probe",)
    from_batches = True
    from_pairs = True
    judged = True
    several = False
    scale = "score"
    least = "min_pairs"
    margin = "max_drop"

    def tests(self, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """One, of the scores of pairs, no matter who has them."""
        _ = conditions
        yield 1, ScoreTest(self)

    def flows(self, expected: Expected, worse: Array) -> Iterator[Flow]:
        """A judge's scores are lower by `worse` in the mean; answers to other prompts differ by more."""
        assumed = expected.assumed
        spread = assumed.score_spread if expected.paired else math.sqrt(2) * assumed.answer_spread
        process = PairedScoresProcess(max_drop=self.max_drop, tolerance=self.tolerance, leading=worse.shape)
        drop = worse[:, None]
        yield expected_draws(
            process, expected.arrivals, lambda first, _: np.clip(drop + spread * scipy.special.ndtri(first), -1, 1)
        )


MOST_WAITING = 1000
"""Scores of one arm that wait for one of the other."""


class ScoreTest(MetricTest):
    """Scores of both arms, pair by pair: of the same prompt where there are pairs, else one to one as they come."""

    process: PairedScoresProcess
    worse = "that its answers are worse"
    sample = "pairs"

    def __init__(self, gate: ScoresGate) -> None:
        super().__init__("score", needed=gate.min_pairs)
        self._max_drop = gate.max_drop
        self.process = PairedScoresProcess(max_drop=gate.max_drop, tolerance=gate.tolerance)
        self._waiting: dict[ArmName, deque[float]] = {arm: deque(maxlen=MOST_WAITING) for arm in ArmName}

    def take(self, batch: Batch, seconds: float) -> None:
        self.missing = batch.missing.get("judge", "")
        pairs = [
            (pair.stable.score, pair.canary.score)
            for pair in batch.pairs
            if pair.stable and pair.canary and pair.stable.score is not None and pair.canary.score is not None
        ]
        for arm in ArmName:
            self._waiting[arm].extend(score for pod in pods_of(batch, arm) for score in pod.scores)
        for arm, dimensions in batch.dimensions.items():
            for dimension, scored in dimensions.items():
                self._dimensions[f"{arm}_{dimension}_score"] += sum(scored)
                self._answers[f"{arm}_{dimension}_score"] += len(scored)
        stable, canary = self._waiting[ArmName.STABLE], self._waiting[ArmName.CANARY]
        pairs += [(stable.popleft(), canary.popleft()) for _ in range(min(len(stable), len(canary)))]
        if not pairs:
            return
        scores = np.asarray(pairs)
        self._count += len(pairs)
        for column, arm in enumerate(ArmName):
            self._totals[arm] += float(scores[:, column].sum())
        self.process.feed(scores[:, 0] - scores[:, 1], seconds)

    def forget(self) -> None:
        self._count, self._totals = 0, dict.fromkeys(ArmName, 0.0)
        self._dimensions: defaultdict[str, float] = defaultdict(float)
        """Sums of what scores are composed of, by the name of their mean: for people."""
        self._answers: Counter[str] = Counter()

    @property
    def seen(self) -> int:
        return self._count

    def describe(self) -> str:
        if not self._count:
            return f"no scores of both arms: {self.missing}" if self.missing else "no scores of both arms"
        canary, stable = (self._totals[arm] / self._count for arm in BOTH)
        return (
            f"canary scores {canary:.2f} against {stable:.2f} on stable over {self._count:,} pairs "
            f"({canary - stable:+z.2f}, allowed {-self._max_drop:+g})"
        )

    @property
    def shows_nothing(self) -> str:
        return NOTHING_SCORES if self._count and max(self._totals.values()) <= self._max_drop * self._count else ""

    def numbers(self) -> Mapping[str, float]:
        means = {f"{arm}_mean_score": self._totals[arm] / self._count for arm in BOTH if self._count}
        return means | {"pairs": float(self._count)}

    def auxiliary(self) -> Mapping[str, float]:
        return {name: total / self._answers[name] for name, total in self._dimensions.items() if self._answers[name]}
