"""Asks whether both versions say much the same to the same prompts: the comparison of shadow traffic.

A prompt that stable answered and the canary did not counts as no likeness at all: a canary that answers only the
easy half must not look alike. One that stable left without an answer says nothing of the canary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial

import numpy as np
import scipy

from gates.analyses.base import Conditions, ExpectedFlow, MetricTest, StageUse, TestedGate
from gates.analyses.quality import NO_WORDS
from gates.evidence.batch import SHORTEST_SECONDS, ArmName, Batch, PairedAnswer, PairedReply, Source
from gates.model import Sample, Share
from gates.stats.binary import ShareProcess
from gates.stats.e_process import Array
from gates.stats.paired import PairedScoresProcess, PairedTimesProcess
from gates.traffic import MOST_PAIRS, ArrivalRates, Assumptions, EvenDraws, Flow, WholeCounts, expected_pairs_of_times
from tidegate.core.model import SpecModel
from tidegate.core.units import Percent, PercentagePoints


class Likeness(StrEnum):
    """In what two answers are to be alike; each gives 0 to 1."""

    WORDS = "words"
    """The share of words that both have."""
    MEANING = "meaning"
    """The cosine of both embeddings, 0 when it is negative."""


class AgreementGate(SpecModel):
    """Answers of both arms to the same prompts must be alike, and the canary's not much later."""

    likeness: Likeness = Likeness.WORDS
    min_similarity: Share = 0.6
    """Mean likeness over all prompts that stable answered, 0 to 1; one that the canary did not answer counts 0."""
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


Score = Callable[[PairedAnswer], float | None]
"""What one pair says; None when it says nothing."""


def agreement_tests(gate: AgreementGate) -> Iterator[MetricTest]:
    """Every comparison that the settings ask for."""
    need = gate.min_pairs
    words = "prompts that stable answered were answered by the canary"
    yield PairShareTest("coverage", words, _arrived, gate.min_coverage, needed=need)
    yield LeastMeanTest("similarity", "answers are {:.2f} alike", _likeness, gate.min_similarity, needed=need)
    if gate.min_same_language is not None:
        yield PairShareTest("language", "pairs are in one language", _same_language, gate.min_same_language, needed=0)
    if gate.min_same_finish is not None:
        yield PairShareTest("finish", "pairs end for the same reason", _same_finish, gate.min_same_finish, needed=0)
    if gate.max_refusal_increase is not None:
        yield RefusalTest(gate.max_refusal_increase)
    if gate.max_ttft_increase is not None:
        yield RatioTest("later", "TTFT", _ttft_ratio, gate.max_ttft_increase)
    if gate.max_length_change is not None:
        yield RatioTest("longer", "length", _length_ratio, gate.max_length_change)
        yield RatioTest("shorter", "length", _shortness_ratio, gate.max_length_change)


class PairTest(MetricTest):
    """A question whose sample is pairs, and whose process has the two usual kinds of evidence."""

    process: ShareProcess | PairedScoresProcess | PairedTimesProcess
    sample = "pairs"

    def __init__(self, kind: str, score: Score, *, needed: int) -> None:
        """`score` says what one pair contributes."""
        super().__init__(kind, needed=needed)
        self._score = score
        self._total, self._count = 0.0, 0

    def take(self, batch: Batch, seconds: float) -> None:
        scores = [score for pair in batch.pairs if (score := self._score(pair)) is not None]
        self._total += sum(scores)
        self._count += len(scores)
        if scores:
            self.learn(np.asarray(scores), seconds)

    def learn(self, scores: Array, seconds: float) -> None:
        """Hand one batch's scores to the process."""
        raise NotImplementedError

    def restart(self) -> None:
        self._total, self._count = 0.0, 0
        self.process.restart_acceptance()

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

    def __init__(self, kind: str, words: str, score: Score, bound: float, *, needed: int) -> None:
        """`bound` is what must be exceeded, 0 to 1."""
        super().__init__(kind, score, needed=needed)
        self._words, self._bound = words, bound
        # Neither certainty can be proven by counting.
        self.process: ShareProcess = ShareProcess(min(max(bound, 0.001), 0.999))

    def learn(self, scores: Array, seconds: float) -> None:
        hits = scores.sum()
        self.process.feed(hits, len(scores) - hits, seconds)

    def describe(self) -> str:
        if not self._count:
            return f"no pairs to tell how many {self._words}"
        return f"{self._total:,.0f} of {self._count:,} {self._words} (at least {self._bound * 100:g} %)"

    def numbers(self) -> Mapping[str, float]:
        return {f"{self.kind}_share": self.mean, "pairs": float(self._count)} if self._count else {"pairs": 0.0}


class LeastMeanTest(PairTest):
    """Whether the mean of scores in 0..1 reaches a bound."""

    worse = "that they are less alike than that"
    fine = "that they are alike enough"

    def __init__(self, kind: str, words: str, score: Score, bound: float, *, needed: int) -> None:
        """`words` has a place for the mean."""
        super().__init__(kind, score, needed=needed)
        self._words, self._bound = words, bound
        # Against a fixed bound there is no stable arm whose spread would have to be tolerated.
        self.process: PairedScoresProcess = PairedScoresProcess(max_drop=0.0, largest_drop=bound)

    def learn(self, scores: Array, seconds: float) -> None:
        self.process.feed(self._bound - scores, seconds)

    def describe(self) -> str:
        if not self._count:
            return f"no pairs to tell the {self.kind} of answers; where answers are empty, {NO_WORDS}"
        return f"{self._words.format(self.mean)} over {self._count:,} pairs (at least {self._bound:g})"

    def numbers(self) -> Mapping[str, float]:
        return {f"mean_{self.kind}_score": self.mean, "pairs": float(self._count)} if self._count else {"pairs": 0.0}


class RefusalTest(PairTest):
    """How many more prompts of the same the canary declines than stable."""

    worse = "that it declines more often than stable"

    def __init__(self, max_increase: float) -> None:
        """A difference of two shares of the prompts."""
        super().__init__("refusal", _more_refusal, needed=0)
        self._margin = max_increase
        self._refused = {ArmName.STABLE: 0, ArmName.CANARY: 0}
        self.process: PairedScoresProcess = PairedScoresProcess(max_drop=max_increase)

    def take(self, batch: Batch, seconds: float) -> None:
        super().take(batch, seconds)
        for stable, canary in (both for pair in batch.pairs if (both := _both_refusals(pair))):
            self._refused[ArmName.STABLE] += stable
            self._refused[ArmName.CANARY] += canary

    def learn(self, scores: Array, seconds: float) -> None:
        self.process.feed(scores, seconds)

    def restart(self) -> None:
        super().restart()
        self._refused = dict.fromkeys(self._refused, 0)

    def describe(self) -> str:
        if not self._count:
            return "no pairs to tell how often the canary declines"
        change = f"{self.mean * 100:+z.1f} pp, allowed {self._margin * 100:+g} pp"
        often = "more often than" if self.mean > 0 else "no more often than"
        return f"the canary declines {often} stable over {self._count:,} pairs ({change})"

    def numbers(self) -> Mapping[str, float]:
        if not self._count:
            return {"pairs": 0.0}
        arms = {f"{arm}_refusal_share": self._refused[arm] / self._count for arm in (ArmName.CANARY, ArmName.STABLE)}
        return {"refusal_increase_share": self.mean, **arms, "pairs": float(self._count)}


class RatioTest(PairTest):
    """The ratio of canary to stable within pairs; what is worse is named: `later`, `longer` or `shorter`."""

    def __init__(self, kind: str, noun: str, score: Score, margin: float) -> None:
        """`score` is the logarithm of the ratio, of its inverse when shorter is worse."""
        super().__init__(kind, score, needed=0)
        self.worse = f"that it is {kind} than tolerated"
        self._noun, self._margin = noun, margin
        self._sign = -1 if kind == "shorter" else 1
        self.process: PairedTimesProcess = PairedTimesProcess(max_increase=margin, tolerance=margin / 4)

    def learn(self, scores: Array, seconds: float) -> None:
        self.process.feed(scores, seconds)

    def describe(self) -> str:
        if not self._count:
            return f"no pairs to tell whether the canary's {self._noun} is {self.kind}"
        allowed = math.expm1(self._sign * math.log1p(self._margin)) * 100
        change = f"{self._change * 100:+z.0f} % within {self._count:,} pairs (allowed {allowed:+.3g} %)"
        return f"the canary's {self._noun} is {change}"

    def numbers(self) -> Mapping[str, float]:
        return {f"{self._noun.lower()}_change_share": self._change} if self._count else {}

    @property
    def _change(self) -> float:
        return math.expm1(self._sign * self.mean)


def _arrived(pair: PairedAnswer) -> float | None:
    # A stable arm that is overloaded is no fault of the canary.
    return float(pair.canary is not None) if pair.stable else None


def _likeness(pair: PairedAnswer) -> float | None:
    # Two empty answers are no likeness: of an arm that says nothing, nothing is known.
    return (0.0 if pair.canary is None else pair.similarity) if pair.stable else None


def _both(pair: PairedAnswer) -> tuple[PairedReply, PairedReply] | None:
    return (pair.stable, pair.canary) if pair.stable and pair.canary else None


def _same_language(pair: PairedAnswer) -> float | None:
    both = _both(pair)
    return float(both[0].language == both[1].language) if both and all(reply.language for reply in both) else None


def _same_finish(pair: PairedAnswer) -> float | None:
    both = _both(pair)
    return float(both[0].finish_reason == both[1].finish_reason) if both else None


def _both_refusals(pair: PairedAnswer) -> tuple[bool, bool] | None:
    both = _both(pair)
    if not both or both[0].refusal is None or both[1].refusal is None:
        return None
    return both[0].refusal, both[1].refusal


def _more_refusal(pair: PairedAnswer) -> float | None:
    both = _both_refusals(pair)
    return float(both[1]) - float(both[0]) if both else None


def _ttft_ratio(pair: PairedAnswer) -> float | None:
    both = _both(pair)
    times = [reply.ttft for reply in both or () if reply.ttft and reply.ttft >= SHORTEST_SECONDS]
    return float(np.log(times[1] / times[0])) if len(times) == 2 else None


def _length_ratio(pair: PairedAnswer) -> float | None:
    both = _both(pair)
    if not both or both[0].output_tokens is None or both[1].output_tokens is None:
        return None
    return float(np.log(max(both[1].output_tokens, 1) / max(both[0].output_tokens, 1)))


def _shortness_ratio(pair: PairedAnswer) -> float | None:
    ratio = _length_ratio(pair)
    return None if ratio is None else -ratio


def expected_likeness(gate: AgreementGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions) -> Flow:
    """Answers of each canary are less like stable's by `worse` in the mean."""
    process = PairedScoresProcess(max_drop=0.0, largest_drop=gate.min_similarity, leading=worse.shape)
    draws = EvenDraws(arrivals.canary)

    def feed(seconds: float) -> None:
        first, second = draws.after(seconds)
        alike = np.clip(assumed.likeness - worse[:, None] + assumed.likeness_spread * scipy.special.ndtri(first), 0, 1)
        process.feed(gate.min_similarity - alike * (second >= assumed.error_rate), seconds)

    return Flow(process, feed, most=MOST_PAIRS)


def expected_coverage(gate: AgreementGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions) -> Flow:
    """A share `worse` more prompts have no answer of the canary."""
    process = ShareProcess(min(max(gate.min_coverage, 0.001), 0.999), leading=worse.shape)
    missing = np.minimum(assumed.error_rate + worse, 1.0)
    whole = WholeCounts((2, *missing.shape))

    def feed(seconds: float) -> None:
        hits, misses = whole.of(arrivals.canary * seconds * np.stack([1 - missing, missing]))
        process.feed(hits, misses, seconds)

    return Flow(process, feed)


class AgreementKind(TestedGate[AgreementGate]):
    """How alike both versions' answers to the same prompts are."""

    name = "agreement"
    spec = settings = AgreementGate
    stages = (StageUse("shadow", ("probe",), by_default=True),)
    usual_sources = ("probe",)
    from_batches = True
    from_pairs = True
    scale = "score"
    sample = "min_pairs"

    def tests(
        self, settings: AgreementGate, source: Source, conditions: Conditions
    ) -> Iterator[tuple[float, MetricTest]]:
        """Every comparison that the settings ask for, with even parts."""
        _ = source, conditions
        yield from ((1, test) for test in agreement_tests(settings))

    def flows(self, settings: AgreementGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """As `TestedGate`."""
        _ = paired, temper
        yield partial(expected_likeness, settings)
        yield partial(expected_coverage, settings)
        if settings.max_ttft_increase is not None:
            margin = settings.max_ttft_increase
            yield partial(expected_pairs_of_times, margin, margin / 4)

    def regression(self, settings: AgreementGate, assumed: Assumptions) -> float:
        """There is no margin to a fixed bound: as far below it as the healthy canary is above."""
        return max(2 * (assumed.likeness - settings.min_similarity), 0.1)
