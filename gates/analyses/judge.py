"""Asks whether a judge scores the canary's answers lower than stable's."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import scipy

from gates.analyses.base import Conditions, ExpectedFlow, MetricTest, StageUse, TestedGate, pods_of
from gates.analyses.quality import NOTHING_SCORES
from gates.evidence.batch import ArmName, Batch, Dimension, Source
from gates.judge.spec import JudgeGate
from gates.model import Sample, Share
from gates.stats.e_process import Array
from gates.stats.paired import PairedScoresProcess
from gates.traffic import MOST_PAIRS, ArrivalRates, Assumptions, EvenDraws, Flow
from tidegate.core.model import SpecConflict, SpecModel


class ScoresGate(SpecModel):
    """The canary's mean score, given by a judge, may be `max_drop` below stable's at most."""

    max_drop: Share = 0.05
    """Of the mean, 0 to 1. The gate passes once the canary is proven to be within it."""
    tolerance: Share = 0.0
    """The gate fails once the canary's mean is proven to be lower than stable's by more than this."""
    min_pairs: Sample = 20
    """Judged before a pass."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """What is tolerated must be allowed."""
        if self.tolerance >= self.max_drop:
            yield SpecConflict(("tolerance",), f"{self.tolerance:g}", f"less than max_drop, {self.max_drop:g}")


MOST_WAITING = 1000
"""Scores of one arm that wait for one of the other."""


class ScoreTest(MetricTest):
    """Scores of both arms, pair by pair: of the same prompt where there are pairs, else one to one as they come."""

    process: PairedScoresProcess
    worse = "that its answers are worse"
    sample = "pairs"

    def __init__(self, *, max_drop: float, tolerance: float, needed: int) -> None:
        """Differences of two means of scores in 0..1."""
        super().__init__("score", needed=needed)
        self._max_drop = max_drop
        self.process = PairedScoresProcess(max_drop=max_drop, tolerance=tolerance)
        self._waiting: dict[ArmName, deque[float]] = {arm: deque(maxlen=MOST_WAITING) for arm in ArmName}
        self._count, self._totals = 0, {ArmName.STABLE: 0.0, ArmName.CANARY: 0.0}
        self._dimensions = _Dimensions()

    def take(self, batch: Batch, seconds: float) -> None:
        self.missing = batch.missing.get("judge", "")
        pairs = [
            (pair.stable.score, pair.canary.score)
            for pair in batch.pairs
            if pair.stable and pair.canary and pair.stable.score is not None and pair.canary.score is not None
        ]
        for arm in ArmName:
            self._waiting[arm].extend(score for pod in pods_of(batch, arm) for score in pod.scores)
        self._dimensions.take(batch)
        stable, canary = self._waiting[ArmName.STABLE], self._waiting[ArmName.CANARY]
        pairs += [(stable.popleft(), canary.popleft()) for _ in range(min(len(stable), len(canary)))]
        if not pairs:
            return
        scores = np.asarray(pairs)
        self._count += len(pairs)
        self._totals[ArmName.STABLE] += float(scores[:, 0].sum())
        self._totals[ArmName.CANARY] += float(scores[:, 1].sum())
        self.process.feed(scores[:, 0] - scores[:, 1], seconds)

    def restart(self) -> None:
        self._count, self._totals = 0, {ArmName.STABLE: 0.0, ArmName.CANARY: 0.0}
        self._dimensions = _Dimensions()
        self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return self._count

    def describe(self) -> str:
        if not self._count:
            return f"no scores of both arms: {self.missing}" if self.missing else "no scores of both arms"
        canary, stable = (self._totals[arm] / self._count for arm in (ArmName.CANARY, ArmName.STABLE))
        return (
            f"canary scores {canary:.2f} against {stable:.2f} on stable over {self._count:,} pairs "
            f"({canary - stable:+z.2f}, allowed {-self._max_drop:+g})"
        )

    @property
    def shows_nothing(self) -> str:
        return NOTHING_SCORES if self._count and max(self._totals.values()) <= self._max_drop * self._count else ""

    def numbers(self) -> Mapping[str, float]:
        if not self._count:
            return {"pairs": 0.0}
        means = {f"{arm}_mean_score": self._totals[arm] / self._count for arm in (ArmName.CANARY, ArmName.STABLE)}
        return means | {"pairs": float(self._count)}

    def auxiliary(self) -> Mapping[str, float]:
        return self._dimensions.means()


class _Dimensions:
    """The means of what both arms' scores are composed of."""

    def __init__(self) -> None:
        self._totals: defaultdict[tuple[ArmName, Dimension], float] = defaultdict(float)
        self._answers: Counter[tuple[ArmName, Dimension]] = Counter()

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


def expected_scores(
    gate: ScoresGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions, *, paired: bool
) -> Flow:
    """A judge's scores of each canary are lower by `worse` in the mean; answers to other prompts differ by more."""
    spread = assumed.score_spread if paired else math.sqrt(2) * assumed.answer_spread
    process = PairedScoresProcess(max_drop=gate.max_drop, tolerance=gate.tolerance, leading=worse.shape)
    draws = EvenDraws(arrivals.canary)

    def feed(seconds: float) -> None:
        first, _ = draws.after(seconds)
        process.feed(np.clip(worse[:, None] + spread * scipy.special.ndtri(first), -1, 1), seconds)

    return Flow(process, feed, most=MOST_PAIRS)


class JudgeKind(TestedGate[ScoresGate]):
    """How much lower a judge scores the canary's answers."""

    name = "judge"
    spec = JudgeGate
    # What the endpoint is asked, and how, is not the statistics' concern.
    settings = ScoresGate
    stages = (StageUse("shadow", ("probe",)), StageUse("canary", ("samples",)))
    usual_sources = ("probe",)
    from_batches = True
    from_pairs = True
    judged = True
    several = False
    scale = "score"
    sample = "min_pairs"
    margin = ("max_drop", 0.5)

    def tests(self, settings: ScoresGate, source: Source, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """One, of the scores of pairs, no matter who has them."""
        _ = source, conditions
        yield (
            1,
            ScoreTest(
                max_drop=settings.max_drop,
                tolerance=settings.tolerance,
                needed=settings.min_pairs,
            ),
        )

    def flows(self, settings: ScoresGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """As `TestedGate`."""
        _ = temper
        yield partial(expected_scores, settings, paired=paired)
