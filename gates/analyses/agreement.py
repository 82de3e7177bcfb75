"""Asks whether both versions say much the same to the same prompts: the comparison of shadow traffic.

A prompt that stable answered and the canary did not counts as no likeness at all: a canary that answers only the
easy half must not look alike. One that stable left without an answer says nothing of the canary.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping

import numpy as np
import scipy

from gates.analyses.base import Conditions, MetricTest, StageUse, TestedGate
from gates.analyses.quality import NO_WORDS
from gates.evidence.batch import Batch, PairedAnswer
from gates.model import Sample, Share
from gates.stats.binary import ShareProcess
from gates.stats.e_process import Array
from gates.stats.paired import PairedScoresProcess
from gates.traffic import Assumptions, Expected, Flow, WholeCounts, expected_draws


class AgreementGate(TestedGate):
    """Answers of both arms to the same prompts must be alike."""

    name = "agreement"
    stages = (StageUse("shadow", ("probe",), by_default=True, of_users=True),)
    usual_sources = ("probe",)
    from_batches = True
    from_pairs = True
    scale = "score"
    least = "min_pairs"

    min_similarity: Share = 0.6
    """Mean share of words that both answers have, over all prompts that stable answered; one that the canary did not
    answer counts 0.

    Two answers of one version differ, too, where users' own requests ask for a temperature.
    """
    min_coverage: Share = 0.9
    """Of the prompts that stable answered, the share that the canary did too; without proof of it nothing passes."""
    min_pairs: Sample = 20
    """Prompts that stable answered before a pass, whether or not the canary did."""

    def tests(self, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """Coverage and likeness, with even parts."""
        _ = conditions
        yield 1, CoverageTest(self.min_coverage, needed=self.min_pairs)
        yield 1, LikenessTest(self.min_similarity, needed=self.min_pairs)

    def flows(self, expected: Expected, worse: Array) -> Iterator[Flow]:
        """Answers less alike by `worse` in the mean, and `worse` more prompts without an answer of the canary."""
        arrivals, assumed = expected.arrivals, expected.assumed
        mean = assumed.likeness - worse[:, None]

        def drop(first: Array, second: Array) -> Array:
            alike = np.clip(mean + assumed.likeness_spread * scipy.special.ndtri(first), 0, 1)
            return np.asarray(self.min_similarity - alike * (second >= assumed.error_rate))

        likeness = PairedScoresProcess(max_drop=0.0, largest_drop=self.min_similarity, leading=worse.shape)
        yield expected_draws(likeness, arrivals, drop)
        coverage = _share_process(self.min_coverage, worse.shape)
        missing = np.minimum(assumed.error_rate + worse, 1.0)
        shares, whole = np.stack([1 - missing, missing]), WholeCounts((2, *missing.shape))

        def feed(seconds: float) -> None:
            hits, misses = whole.of(arrivals.canary * seconds * shares)
            coverage.feed(hits, misses, seconds)

        yield Flow(coverage, feed)

    def regression(self, assumed: Assumptions) -> float:
        """There is no margin to a fixed bound: as far below it as the healthy canary is above."""
        return max(2 * (assumed.likeness - self.min_similarity), 0.1)


class PairTest(MetricTest):
    """A question whose sample is pairs, each with a number."""

    process: ShareProcess | PairedScoresProcess
    sample = "pairs"

    @abstractmethod
    def score(self, pair: PairedAnswer) -> float | None:
        """What one pair says; None when it says nothing."""

    @abstractmethod
    def learn(self, scores: Array, seconds: float) -> None:
        """Hand one batch's scores to the process."""

    def take(self, batch: Batch, seconds: float) -> None:
        scores = [score for pair in batch.pairs if (score := self.score(pair)) is not None]
        self._total += sum(scores)
        self._count += len(scores)
        if scores:
            self.learn(np.asarray(scores), seconds)

    def forget(self) -> None:
        self._total, self._count = 0.0, 0

    @property
    def seen(self) -> int:
        return self._count

    @property
    def mean(self) -> float:
        """Of all scores since the last restart."""
        return self._total / self._count if self._count else 0.0


class CoverageTest(PairTest):
    """What share of the prompts that stable answered the canary answered too."""

    worse = "that the share is below that"
    fine = "that the share is above that"
    process: ShareProcess

    def __init__(self, bound: float, *, needed: int) -> None:
        """`bound` is what must be exceeded, 0 to 1."""
        super().__init__("coverage", needed=needed)
        self._bound = bound
        self.process = _share_process(bound)

    def score(self, pair: PairedAnswer) -> float | None:
        # A stable arm that is overloaded is no fault of the canary.
        return float(pair.canary is not None) if pair.stable else None

    def learn(self, scores: Array, seconds: float) -> None:
        hits = scores.sum()
        self.process.feed(hits, len(scores) - hits, seconds)

    def describe(self) -> str:
        words = "prompts that stable answered were answered by the canary"
        if not self._count:
            return f"no pairs to tell how many {words}"
        return f"{self._total:,.0f} of {self._count:,} {words} (at least {self._bound * 100:g} %)"

    def numbers(self) -> Mapping[str, float]:
        return {"coverage_share": self.mean, "pairs": float(self._count)} if self._count else {"pairs": 0.0}


def _share_process(bound: float, leading: tuple[int, ...] = ()) -> ShareProcess:
    # Neither certainty can be proven by counting.
    return ShareProcess(min(max(bound, 0.001), 0.999), leading=leading)


class LikenessTest(PairTest):
    """Whether the mean likeness reaches a bound."""

    worse = "that they are less alike than that"
    fine = "that they are alike enough"
    process: PairedScoresProcess

    def __init__(self, bound: float, *, needed: int) -> None:
        super().__init__("similarity", needed=needed)
        self._bound = bound
        # Against a fixed bound there is no stable arm whose spread would have to be tolerated.
        self.process = PairedScoresProcess(max_drop=0.0, largest_drop=bound)

    def score(self, pair: PairedAnswer) -> float | None:
        # Two empty answers are no likeness: of an arm that says nothing, nothing is known.
        return (0.0 if pair.canary is None else pair.similarity) if pair.stable else None

    def learn(self, scores: Array, seconds: float) -> None:
        self.process.feed(self._bound - scores, seconds)

    def describe(self) -> str:
        if not self._count:
            return f"no pairs to tell the similarity of answers; where answers are empty, {NO_WORDS}"
        return f"answers are {self.mean:.2f} alike over {self._count:,} pairs (at least {self._bound:g})"

    def numbers(self) -> Mapping[str, float]:
        return {"mean_similarity_score": self.mean, "pairs": float(self._count)} if self._count else {"pairs": 0.0}
