"""Asks whether both versions say much the same to the same prompts: the comparison of shadow traffic.

A prompt that stable answered and the canary did not counts as no likeness at all: a canary that answers only the
easy half must not look alike. One that stable left without an answer says nothing of the canary.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import scipy

from gates.analyses.base import BOTH, Conditions, MetricTest, StageUse, TestedGate
from gates.analyses.quality import NO_WORDS
from gates.evidence.batch import SHORTEST_SECONDS, Batch, PairedAnswer, Source
from gates.model import Sample, Share
from gates.stats.binary import ShareProcess
from gates.stats.e_process import Array
from gates.stats.paired import PairedScoresProcess, PairedTimesProcess
from gates.traffic import ArrivalRates, Assumptions, Flow, WholeCounts, expected_draws, expected_pairs_of_times
from tidegate.core.units import Percent, PercentagePoints


class Likeness(StrEnum):
    """In what two answers are to be alike; each gives 0 to 1."""

    WORDS = "words"
    """The share of words that both have."""
    MEANING = "meaning"
    """The cosine of both embeddings, 0 when it is negative."""


class AgreementGate(TestedGate):
    """Answers of both arms to the same prompts must be alike, and the canary's not much later."""

    name = "agreement"
    stages = (StageUse("shadow", ("probe",), by_default=True, of_users=True),)
    usual_sources = ("probe",)
    from_batches = True
    from_pairs = True
    scale = "score"
    least = "min_pairs"

    likeness: Likeness = Likeness.WORDS
    min_similarity: Share = 0.6
    """Mean likeness over all prompts that stable answered, 0 to 1; one that the canary did not answer counts 0.

    Two answers of one version differ, too, where users' own requests ask for a temperature.
    """
    max_ttft_increase: Percent | None = None
    """Of the canary's TTFT over stable's within pairs; not looked at when absent."""
    min_coverage: Share = 0.9
    """Of the prompts that stable answered, the share that the canary did too; without proof of it nothing passes."""
    min_same_language: Share | None = None
    """The share of pairs whose answers are in one language; not looked at when absent, as all that follows."""
    min_same_finish: Share | None = None
    """The share of pairs that end for the same reason: both by themselves, or both at the limit."""
    max_refusal_increase: PercentagePoints | None = None
    """Of answers that decline the request in words."""
    max_length_change: Percent | None = None
    """Of the answers' lengths within pairs, in tokens, to either side."""
    min_pairs: Sample = 20
    """Prompts that stable answered before a pass, whether or not the canary did."""

    def tests(self, source: Source, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """Every comparison that the settings ask for, with even parts."""
        _ = source, conditions
        yield from ((1, test) for test in agreement_tests(self))

    def flows(
        self, arrivals: ArrivalRates, worse: Array, assumed: Assumptions, *, paired: bool, temper: bool
    ) -> Iterator[Flow]:
        """Answers less alike by `worse` in the mean, and `worse` more prompts without an answer of the canary."""
        _ = paired, temper
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
        if self.max_ttft_increase is not None:
            yield expected_pairs_of_times(self.max_ttft_increase, self.max_ttft_increase / 4, arrivals, worse, assumed)

    def regression(self, assumed: Assumptions) -> float:
        """There is no margin to a fixed bound: as far below it as the healthy canary is above."""
        return max(2 * (assumed.likeness - self.min_similarity), 0.1)


def agreement_tests(gate: AgreementGate) -> Iterator[MetricTest]:
    """Every comparison that the settings ask for."""
    words = "prompts that stable answered were answered by the canary"
    yield PairShareTest("coverage", words, _arrived, gate.min_coverage, needed=gate.min_pairs)
    yield LikenessTest(gate.min_similarity, needed=gate.min_pairs)
    if gate.min_same_language is not None:
        yield PairShareTest("language", "pairs are in one language", _same("language"), gate.min_same_language)
    if gate.min_same_finish is not None:
        yield PairShareTest("finish", "pairs end for the same reason", _same("finish_reason"), gate.min_same_finish)
    if gate.max_refusal_increase is not None:
        yield RefusalTest(gate.max_refusal_increase)
    if gate.max_ttft_increase is not None:
        yield RatioTest("later", "TTFT", _ttft_ratio, gate.max_ttft_increase)
    if gate.max_length_change is not None:
        yield RatioTest("longer", "length", _length_ratio, gate.max_length_change)
        yield RatioTest("shorter", "length", _length_ratio, gate.max_length_change)


Score = Callable[[PairedAnswer], float | None]
"""What one pair says; None when it says nothing."""


class PairTest(MetricTest):
    """A question whose sample is pairs, each with a number."""

    process: ShareProcess | PairedScoresProcess | PairedTimesProcess
    sample = "pairs"

    def __init__(self, kind: str, score: Score, *, needed: int = 0) -> None:
        """`score` says what one pair contributes."""
        super().__init__(kind, needed=needed)
        self._score = score

    def take(self, batch: Batch, seconds: float) -> None:
        scores = [score for pair in batch.pairs if (score := self._score(pair)) is not None]
        self._total += sum(scores)
        self._count += len(scores)
        if scores:
            self.learn(np.asarray(scores), seconds)

    @abstractmethod
    def learn(self, scores: Array, seconds: float) -> None:
        """Hand one batch's scores to the process."""

    def forget(self) -> None:
        self._total, self._count = 0.0, 0

    @property
    def seen(self) -> int:
        return self._count

    @property
    def mean(self) -> float:
        """Of all scores since the last restart."""
        return self._total / self._count if self._count else 0.0


class PairShareTest(PairTest):
    """What share of pairs has something that it should have."""

    worse = "that the share is below that"
    fine = "that the share is above that"
    process: ShareProcess

    def __init__(self, kind: str, words: str, score: Score, bound: float, *, needed: int = 0) -> None:
        """`bound` is what must be exceeded, 0 to 1."""
        super().__init__(kind, score, needed=needed)
        self._words, self._bound = words, bound
        self.process = _share_process(bound)

    def learn(self, scores: Array, seconds: float) -> None:
        hits = scores.sum()
        self.process.feed(hits, len(scores) - hits, seconds)

    def describe(self) -> str:
        if not self._count:
            return f"no pairs to tell how many {self._words}"
        return f"{self._total:,.0f} of {self._count:,} {self._words} (at least {self._bound * 100:g} %)"

    def numbers(self) -> Mapping[str, float]:
        return {f"{self.kind}_share": self.mean, "pairs": float(self._count)} if self._count else {"pairs": 0.0}


def _share_process(bound: float, leading: tuple[int, ...] = ()) -> ShareProcess:
    # Neither certainty can be proven by counting.
    return ShareProcess(min(max(bound, 0.001), 0.999), leading=leading)


class LikenessTest(PairTest):
    """Whether the mean likeness reaches a bound."""

    worse = "that they are less alike than that"
    fine = "that they are alike enough"
    process: PairedScoresProcess

    def __init__(self, bound: float, *, needed: int) -> None:
        super().__init__("similarity", _likeness, needed=needed)
        self._bound = bound
        # Against a fixed bound there is no stable arm whose spread would have to be tolerated.
        self.process = PairedScoresProcess(max_drop=0.0, largest_drop=bound)

    def learn(self, scores: Array, seconds: float) -> None:
        self.process.feed(self._bound - scores, seconds)

    def describe(self) -> str:
        if not self._count:
            return f"no pairs to tell the similarity of answers; where answers are empty, {NO_WORDS}"
        return f"answers are {self.mean:.2f} alike over {self._count:,} pairs (at least {self._bound:g})"

    def numbers(self) -> Mapping[str, float]:
        return {"mean_similarity_score": self.mean, "pairs": float(self._count)} if self._count else {"pairs": 0.0}


class RefusalTest(PairTest):
    """How many more prompts of the same the canary declines than stable."""

    worse = "that it declines more often than stable"
    process: PairedScoresProcess

    def __init__(self, max_increase: float) -> None:
        """A difference of two shares of the prompts."""
        super().__init__("refusal", _more_refusal)
        self._margin = max_increase
        self.process = PairedScoresProcess(max_drop=max_increase)

    def take(self, batch: Batch, seconds: float) -> None:
        super().take(batch, seconds)
        self._stable += sum(both[0] for pair in batch.pairs if (both := _both(pair, "refusal")))

    def learn(self, scores: Array, seconds: float) -> None:
        self.process.feed(scores, seconds)

    def forget(self) -> None:
        super().forget()
        self._stable = 0

    def describe(self) -> str:
        if not self._count:
            return "no pairs to tell how often the canary declines"
        change = f"{self.mean * 100:+z.1f} pp, allowed {self._margin * 100:+g} pp"
        often = "more often than" if self.mean > 0 else "no more often than"
        return f"the canary declines {often} stable over {self._count:,} pairs ({change})"

    def numbers(self) -> Mapping[str, float]:
        if not self._count:
            return {"pairs": 0.0}
        declined = (self._stable + self._total, self._stable)
        arms = {f"{arm}_refusal_share": each / self._count for arm, each in zip(BOTH, declined, strict=True)}
        return {"refusal_increase_share": self.mean, **arms, "pairs": float(self._count)}


class RatioTest(PairTest):
    """The ratio of canary to stable within pairs; what is worse is named: `later`, `longer` or `shorter`."""

    process: PairedTimesProcess

    def __init__(self, kind: str, noun: str, log_ratio: Score, margin: float) -> None:
        super().__init__(kind, log_ratio)
        self.worse = f"that it is {kind} than tolerated"
        self._noun, self._margin = noun, margin
        self._sign = -1 if kind == "shorter" else 1
        self.process = PairedTimesProcess(max_increase=margin, tolerance=margin / 4)

    def learn(self, scores: Array, seconds: float) -> None:
        self.process.feed(self._sign * scores, seconds)

    def describe(self) -> str:
        if not self._count:
            return f"no pairs to tell whether the canary's {self._noun} is {self.kind}"
        allowed = math.expm1(self._sign * math.log1p(self._margin)) * 100
        change = f"{math.expm1(self.mean) * 100:+z.0f} % within {self._count:,} pairs (allowed {allowed:+.3g} %)"
        return f"the canary's {self._noun} is {change}"

    def numbers(self) -> Mapping[str, float]:
        return {f"{self._noun.lower()}_change_share": math.expm1(self.mean)} if self._count else {}


def _arrived(pair: PairedAnswer) -> float | None:
    # A stable arm that is overloaded is no fault of the canary.
    return float(pair.canary is not None) if pair.stable else None


def _likeness(pair: PairedAnswer) -> float | None:
    # Two empty answers are no likeness: of an arm that says nothing, nothing is known.
    return (0.0 if pair.canary is None else pair.similarity) if pair.stable else None


def _both(pair: PairedAnswer, field: str) -> tuple[Any, Any] | None:
    """What is known of stable's reply and of the canary's; None unless it is of both."""
    stable, canary = getattr(pair.stable, field, None), getattr(pair.canary, field, None)
    return None if None in (stable, canary) or "" in (stable, canary) else (stable, canary)


def _same(field: str) -> Score:
    return lambda pair: float(both[0] == both[1]) if (both := _both(pair, field)) else None


def _more_refusal(pair: PairedAnswer) -> float | None:
    return float(both[1]) - float(both[0]) if (both := _both(pair, "refusal")) else None


def _ttft_ratio(pair: PairedAnswer) -> float | None:
    both = _both(pair, "ttft")
    return float(np.log(both[1] / both[0])) if both and min(both) >= SHORTEST_SECONDS else None


def _length_ratio(pair: PairedAnswer) -> float | None:
    both = _both(pair, "output_tokens")
    return float(np.log(max(both[1], 1) / max(both[0], 1))) if both else None
