"""Asks whether users ask both arms the same kind of things, and whether the canary answers in the same kind of way.

It reads samples of users' requests, of which it learns numbers and names and no words. In canary each arm has users of
its own: proven drift of answers is the canary's doing, `fail`; when the arms are asked different things, no comparison
between them is fair, the other gates' neither: `inconclusive`, at once. In shadow both arms answer the same requests.

The few interim analyses stay valid however often the gate is asked: one is made only when the canary's requests
have grown by half, and it spends a smaller part of the error budget than the one before. When it is made depends on
how many requests came, never on what they were. Bins are the same for everybody, so that no evidence chooses them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np
import scipy
from pydantic import Field

from gates.analyses.base import Conditions, Monitor, MonitoredGate, StageUse
from gates.evidence.batch import ArmName, Batch, PairedReply
from gates.model import GateOutcome, Verdict
from gates.stats.divergence import STRATUM_REQUESTS, Divergence, Strata
from gates.traffic import Expected
from tidegate.core.model import SpecConflict


class Feature(StrEnum):
    """One thing that can drift; the first two are of prompts, the others of answers."""

    PROMPT_LENGTH = "prompt_length"
    """In characters: tokens would change with the tokenizer of the version that counts them."""
    LANGUAGE = "language"
    LENGTH = "length"
    """In tokens, as the engine counted."""
    FINISH_REASON = "finish_reason"
    REFUSAL = "refusal"
    """Whether the answer declines in words."""


EDGES = tuple(2 ** (half / 2) for half in range(31))
"""Upper ends of the bins of numbers, two for each doubling: 1 to 32,768. Bins that are rare are put together."""


class Trait(NamedTuple):
    """What is known of a feature."""

    words: str
    usual: float
    """What its population stability index may be."""
    value: Callable[[PairedReply], float | str | bool | None]
    """Of a reply; None or empty for nothing, which is neither 0 nor a name of its own."""
    names: tuple[str | bool, ...] = ()
    """Values with a bin of their own, all others share the last; none of numbers."""
    of_prompts: bool = False
    shown: Mapping[str, int] = {}
    """What curves show of it: the name of a share, and its bin."""

    @property
    def bins(self) -> int:
        """With one for all others, or for numbers beyond the last edge."""
        return len(self.names or EDGES) + 1

    def place(self, value: float | str | bool) -> int:
        """The index of its bin; a number belongs to the first edge that it does not exceed."""
        if not self.names:
            return bisect_left(EDGES, float(value))
        return self.names.index(value) if value in self.names else len(self.names)


LANGUAGES = ("ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh")
ENDINGS = {"finish_reason_length": 0, "finish_reason_stop": 1, "finish_reason_other": 2}
# 0.2 is by custom the beginning of a change that matters. What is rare must be allowed less: refusals that grow from
# 3 % to 15 % are no more than 0.2.
TRAITS: Mapping[Feature, Trait] = {
    Feature.PROMPT_LENGTH: Trait("prompt length", 0.2, lambda reply: reply.prompt_characters, of_prompts=True),
    Feature.LANGUAGE: Trait("prompt language", 0.2, lambda reply: reply.prompt_language, LANGUAGES, of_prompts=True),
    Feature.LENGTH: Trait("answer length", 0.2, lambda reply: reply.output_tokens),
    Feature.FINISH_REASON: Trait(
        "finish reason", 0.1, lambda reply: reply.finish_reason, ("length", "stop"), shown=ENDINGS
    ),
    Feature.REFUSAL: Trait("refusals", 0.1, lambda reply: reply.refusal, (False, True), shown={"refusal": 1}),
}
USUAL = {feature: trait.usual for feature, trait in TRAITS.items()}


class DriftGate(MonitoredGate):
    """Users must ask both arms the same kind of things, and the canary must answer in the same kind of way."""

    name = "drift"
    stages = (StageUse("shadow", ("samples",)), StageUse("canary", ("samples",)))
    usual_sources = ("samples",)
    several = False

    features: Mapping[Feature, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = USUAL
    """What is looked at, and what the population stability index of each may be at most. What users ask is not looked
    at in shadow, where both arms get the same."""
    min_requests: int = Field(default=100, ge=20)
    """Of each arm before the first look."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Something of answers is looked at."""
        of_answers = sorted(feature for feature, trait in TRAITS.items() if not trait.of_prompts)
        if self.features.keys().isdisjoint(of_answers):
            yield SpecConflict(("features",), "none of answers", f"one or more of {', '.join(of_answers)}")

    def monitor(self, conditions: Conditions) -> DriftMonitor:
        return DriftMonitor(self, rollback=conditions.rollback, paired=conditions.mirrored is not None)

    def passes(self, expected: Expected, conditions: Conditions) -> float:
        """As `MonitoredGate`; traffic has no drift that could be assumed."""
        _, arrivals = conditions, expected.arrivals
        ratio = arrivals.stable / arrivals.canary
        return requests_to_pass(tuple(self.features.items()), self.min_requests, ratio) / arrivals.canary


GROWTH = 1.5
"""Of the canary's requests between two looks."""
PASS_LEVEL = 0.05
"""Chance of passing when the true divergence is just what is allowed; for one comparison, over all its looks."""


def spending(number: int) -> float:
    """By how much a look's p-value grows because there are others: 1 over its share of the budget.

    The shares 6 / (pi k)^2 of all looks k = 1, 2, ... sum to 1.
    """
    return (math.pi * number) ** 2 / 6


class InterimAnalysis(NamedTuple):
    """What was seen when it was looked."""

    number: int
    """1 is the first."""
    requests: int
    """Of the canary."""
    against: int
    """Of the stable arm."""
    divergence: Divergence
    p_value: float
    """That the true divergence is within what is allowed: the least of all looks so far, each corrected by `spending`,
    so valid at any time."""
    at_most: float
    """What the true divergence is below, as sure as `PASS_LEVEL` says of all looks together."""


class Comparison:
    """One question of the gate, and what is known of it."""

    def __init__(self, feature: Feature, *, allowed: float, least: int, paired: bool) -> None:
        """`paired` arms answer the same requests: each pair is a stratum of its own, as in McNemar's test.

        How far the arms are apart is told as if they were not paired, which is less sure.
        """
        self.feature, self.allowed = feature, allowed
        self._least, self._paired = least, paired
        self.look: InterimAnalysis | None = None
        self.requests = self.against = 0
        """Counted so far, looked at or not."""
        self._trait = TRAITS[feature]
        self.strata = Strata.begin(self._trait.bins, closes_at=1 if paired else STRATUM_REQUESTS)

    def take(self, batch: Batch) -> None:
        """Count a batch, and look if it is time."""
        if self._paired:
            for pair in batch.pairs:
                if pair.stable and pair.canary:
                    self._count([pair.stable], [pair.canary])
        else:
            self._count(*(batch.answers.get(arm, ()) for arm in (ArmName.STABLE, ArmName.CANARY)))
        if self.requests >= (GROWTH * self.look.requests if self.look else self._least):
            self.look = self.looked()

    def _count(self, *arms: Sequence[PairedReply]) -> None:
        found = [[self._trait.value(reply) for reply in arm] for arm in arms]
        values = [[value for value in each if value is not None and value != ""] for each in found]
        # One that is known of one arm alone is no pair.
        if self._paired and not all(values):
            return
        counts = [
            np.bincount([self._trait.place(value) for value in each], minlength=self._trait.bins) for each in values
        ]
        self.strata = self.strata.plus(*counts)
        self.against += len(values[0])
        self.requests += len(values[1])

    def looked(self) -> InterimAnalysis | None:
        """The look that could be made now; the last one where there is too little, or nothing new."""
        strata, last = self.strata.closed(), self.look
        too_few = min(strata.canary_requests, strata.stable_requests) < self._least
        if too_few or (last and last.requests == self.requests):
            return last
        number = last.number + 1 if last else 1
        divergence = strata.divergence
        p_value = max(divergence.chance_above(self.allowed), strata.chance()) * spending(number)
        at_most = divergence.upper(PASS_LEVEL / spending(number))
        least = min(p_value, last.p_value if last else 1.0)
        return InterimAnalysis(number, self.requests, self.against, divergence, least, at_most)

    def finding(self, look: InterimAnalysis | None, level: float) -> Finding:
        """What a look says; `level` is this comparison's share of the error budget."""
        if look is None:
            words = f"{self._trait.words} is known of {self.requests} canary and {self.against} stable requests"
            return Finding(GateOutcome.RUNNING, f"{words}; at least {self._least} are needed", {}, math.inf)
        used = look.at_most / self.allowed
        what, allowed = f"{self._trait.words} PSI {look.divergence.value:.3g}", f"where {self.allowed:g} is allowed"
        after = f"after {look.requests:,} canary and {look.against:,} stable requests"
        if look.p_value <= level:
            proof = f"{what} {allowed}, {after} (p = {look.p_value:.1g})"
            outcome, sentence = GateOutcome.FAIL, f"the canary answers differently: {proof}"
            if self._trait.of_prompts:
                unfair = "the arms are asked different things, so no comparison of them is fair"
                outcome, sentence = GateOutcome.INCONCLUSIVE, f"{unfair}: {proof}"
        elif used <= 1:
            outcome, sentence = GateOutcome.PASS, f"{what}, at most {look.at_most:.3g} {allowed}, {after}"
        else:
            outcome, sentence = GateOutcome.RUNNING, f"{what} may be as much as {look.at_most:.3g} {allowed}, {after}"
        numbers = {
            "psi": look.divergence.value,
            "psi_by_chance": look.divergence.by_chance,
            "psi_at_most": look.at_most,
            "psi_allowed": self.allowed,
            "p_value": look.p_value,
            "requests": float(look.requests),
            "reference_requests": float(look.against),
        }
        named = {f"{self.feature}_{number}": value for number, value in numbers.items()}
        return Finding(outcome, sentence, named, used)

    def shares(self) -> dict[str, float]:
        """How both arms answer so far, for curves: nothing is decided by them."""
        strata = self.strata.closed()
        n, shown = strata.canary_requests, self._trait.shown.items()
        # Stable's as if it had been asked when the canary was.
        arms = {"canary": strata.canary, "stable": strata.expected}
        return {f"{arm}_{name}_share": float(of[at]) / n for name, at in shown for arm, of in arms.items() if n}


class Finding(NamedTuple):
    """What one comparison says."""

    outcome: GateOutcome
    """`inconclusive` is proven drift that is not the canary's doing."""
    sentence: str
    numbers: Mapping[str, float]
    used: float
    """The upper bound of the divergence, in units of what is allowed."""


class DriftMonitor(Monitor):
    """Adds up what batches count, and judges it when asked."""

    def __init__(self, settings: DriftGate, *, rollback: float, paired: bool = False) -> None:
        """`rollback` is the gate's share of the delivery's error budget: the chance of ending a delivery over
        divergences that are all within what is allowed, however many features and however often it is asked.
        """
        self._settings = settings
        self.comparisons = [
            Comparison(feature, allowed=allowed, least=settings.min_requests, paired=paired)
            for feature, allowed in settings.features.items()
            if not (paired and TRAITS[feature].of_prompts)
        ]
        self._level = rollback / len(self.comparisons)

    def take(self, batch: Batch, seconds: float) -> None:
        """A batch without answers says nothing of drift."""
        _ = seconds
        for comparison in self.comparisons:
            comparison.take(batch)

    def restart(self) -> None:
        """What was seen at another weight is about the same answers: it stays."""

    def verdict(self, *, deadline_passed: bool) -> Verdict:
        """Of all batches so far; at the deadline a last look takes what is there, however little it grew."""
        found = [
            each.finding(each.looked() if deadline_passed else each.look, self._level) for each in self.comparisons
        ]
        # Different questions first: answers to them may well differ, and that is not the canary's doing.
        unfair = [finding for finding in found if finding.outcome is GateOutcome.INCONCLUSIVE]
        outcome = max(finding.outcome for finding in found)
        first = max(unfair or [each for each in found if each.outcome is outcome], key=lambda finding: finding.used)
        outcome, reason = first.outcome, first.sentence
        if outcome is GateOutcome.PASS:
            reason = f"the arms are alike in all {len(found)} features; the least sure: {reason}"
        if outcome is GateOutcome.RUNNING and deadline_passed:
            outcome = GateOutcome.INCONCLUSIVE
        numbers = {name: value for finding in found for name, value in finding.numbers.items()}
        shares = {name: value for each in self.comparisons for name, value in each.shares().items()}
        return Verdict(gate=self._settings.name, outcome=outcome, reason=reason, numbers=numbers, auxiliary=shares)


USUAL_BINS = 10
"""That numbers fill: of the others, bins that are rare are one."""
BINS_OF_NAMES = 3
"""A feature whose values are names has few common ones."""
MOST_REQUESTS = 10_000_000
"""Of the canary; who needs more needs another threshold."""


@lru_cache(maxsize=1024)
def requests_to_pass(allowed: tuple[tuple[Feature, float], ...], least: int, stable_per_canary: float) -> float:
    """Canary requests after which half of all canaries without any drift have passed; infinity for never.

    `stable_per_canary` is how many requests the stable arm has for each of the canary's.
    """
    # All features must pass: half the time each is luckier than this.
    luck = 0.5 ** (1 / len(allowed))
    # The first look waits for the arm that has fewer.
    requests, number = least / min(1.0, stable_per_canary), 1
    while requests <= MOST_REQUESTS:
        size, level = requests * stable_per_canary / (1 + stable_per_canary), PASS_LEVEL / spending(number)
        if all(_seen(feature, size, luck).upper(level) <= psi for feature, psi in allowed):
            return math.ceil(requests)
        requests, number = requests * GROWTH, number + 1
    return math.inf


def _seen(feature: Feature, size: float, luck: float) -> Divergence:
    """What arms without drift look like; a share `luck` of samples of this size shows less."""
    bins = BINS_OF_NAMES if TRAITS[feature].names else USUAL_BINS
    value = float(scipy.special.chdtri(bins - 1, 1 - luck)) / size
    return Divergence(value, bins, size, 2 * math.sqrt(value / size))
