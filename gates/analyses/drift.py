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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import scipy
from pydantic import BeforeValidator, Field

from gates.analyses.base import Conditions, Monitor, MonitoredGate, StageUse
from gates.evidence.batch import ArmName, Batch, PairedReply
from gates.model import GateOutcome, Verdict
from gates.stats.divergence import STRATUM_REQUESTS, Divergence, Strata
from gates.traffic import ArrivalRates, Assumptions
from tidegate.core.model import SpecModel


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


PROMPTS = frozenset({Feature.PROMPT_LENGTH, Feature.LANGUAGE})
"""Those of what users ask."""
EDGES = tuple(2 ** (half / 2) for half in range(31))
"""Upper ends of the bins of numbers, two for each doubling: 1 to 32,768. Bins that are rare are put together."""
NAMES: Mapping[Feature, tuple[str, ...]] = {
    Feature.LANGUAGE: ("ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh"),
    Feature.FINISH_REASON: ("length", "stop"),
    Feature.REFUSAL: ("false", "true"),
}
"""Names with a bin of their own; all others share the last."""


def value_of(feature: Feature, reply: PairedReply) -> float | str | None:
    """What is known of a reply; None for nothing, which is neither 0 nor a name of its own."""
    known: Mapping[Feature, float | str | None] = {
        Feature.PROMPT_LENGTH: reply.prompt_characters,
        Feature.LANGUAGE: reply.prompt_language or None,
        Feature.LENGTH: reply.output_tokens,
        Feature.FINISH_REASON: reply.finish_reason or None,
        Feature.REFUSAL: None if reply.refusal is None else str(reply.refusal).lower(),
    }
    return known[feature]


def place_of(feature: Feature, value: float | str) -> int:
    """The index of the bin of `value`; a number belongs to the first edge that it does not exceed."""
    if isinstance(value, str):
        names = NAMES[feature]
        return names.index(value) if value in names else len(names)
    return bisect_left(EDGES, value)


DEFAULT_PSI = {Feature.FINISH_REASON: 0.1, Feature.REFUSAL: 0.1}
"""Where no threshold is set; else 0.2, by custom the beginning of a change that matters. What is rare must be allowed
less: refusals that grow from 3 % to 15 % are no more than 0.2."""

Input = Literal[Feature.PROMPT_LENGTH, Feature.LANGUAGE]
Output = Literal[Feature.LENGTH, Feature.FINISH_REASON, Feature.REFUSAL]


class Allowed(SpecModel):
    """Features that are looked at, and how far each may move."""

    psi: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The population stability index that each may have at most."""

    def threshold(self, feature: Feature) -> float:
        """What it may be at most."""
        return DEFAULT_PSI.get(feature, 0.2) if self.psi is None else self.psi


class InputsAllowed(Allowed):
    """How far what users ask one arm may differ from what they ask the other."""

    features: tuple[Input, ...] = Field(default=(Feature.PROMPT_LENGTH, Feature.LANGUAGE), min_length=1)


class OutputsAllowed(Allowed):
    """How far the canary's answers may differ from those of the stable arm at the same time."""

    features: tuple[Output, ...] = Field(default=(Feature.LENGTH, Feature.FINISH_REASON, Feature.REFUSAL), min_length=1)


def _features(value: Any) -> Any:
    # `outputs: [length, refusal]` names the features and leaves the threshold as it is.
    return {"features": value} if isinstance(value, list | tuple) else value


class DriftGate(MonitoredGate):
    """Users must ask both arms the same kind of things, and the canary must answer in the same kind of way."""

    name = "drift"
    stages = (StageUse("shadow", ("samples",)), StageUse("canary", ("samples",)))
    usual_sources = ("samples",)
    several = False

    inputs: Annotated[InputsAllowed, BeforeValidator(_features)] | None = InputsAllowed()
    """Absent (`null`): what users ask is not looked at; nor is it in shadow, where both arms get the same."""
    outputs: Annotated[OutputsAllowed, BeforeValidator(_features)] = OutputsAllowed()
    min_requests: int = Field(default=100, ge=20)
    """Of each arm before the first look."""

    @property
    def thresholds(self) -> Mapping[Feature, float]:
        """By feature that is looked at, what its divergence may be at most."""
        parts = [part for part in (self.inputs, self.outputs) if part]
        return {feature: part.threshold(feature) for part in parts for feature in part.features}

    def monitor(self, conditions: Conditions) -> DriftMonitor:
        return DriftMonitor(self, rollback=conditions.rollback, paired=conditions.mirrored is not None)

    def passes(self, arrivals: ArrivalRates, assumed: Assumptions, conditions: Conditions) -> float:
        """As `MonitoredGate`; traffic has no drift that could be assumed."""
        _ = assumed, conditions
        return requests_to_pass(self, stable_per_canary=arrivals.stable / arrivals.canary) / arrivals.canary


GROWTH = 1.5
"""Of the canary's requests between two looks."""
PASS_LEVEL = 0.05
"""Chance of passing when the true divergence is just what is allowed; for one comparison, over all its looks."""


def spending(number: int) -> float:
    """By how much a look's p-value grows because there are others: 1 over its share of the budget.

    The shares 6 / (pi k)^2 of all looks k = 1, 2, ... sum to 1.
    """
    return (math.pi * number) ** 2 / 6


@dataclass(frozen=True)
class InterimAnalysis:
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
        bins = len(NAMES[feature]) if feature in NAMES else len(EDGES)
        self.strata = Strata.begin(bins + 1, closes_at=1 if paired else STRATUM_REQUESTS)

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
        values = [[value for reply in arm if (value := value_of(self.feature, reply)) is not None] for arm in arms]
        # One that is known of one arm alone is no pair.
        if self._paired and not all(values):
            return
        size = len(self.strata.canary)
        counts = [np.bincount([place_of(self.feature, each) for each in arm], minlength=size) for arm in values]
        self.strata = self.strata.plus(*counts)
        self.against += len(values[0])
        self.requests += len(values[1])

    def looked(self) -> InterimAnalysis | None:
        """The look that could be made now; the last one where there is too little, or nothing new."""
        strata, last = self.strata.closed(), self.look
        if min(strata.canary_requests, strata.stable_requests) < self._least:
            return last
        if last and last.requests == self.requests:
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
            return Finding(self, GateOutcome.RUNNING, self._too_few(), {}, math.inf)
        used = look.at_most / self.allowed
        if look.p_value <= level:
            # Drift that is proven, and not the canary's doing.
            outcome = GateOutcome.INCONCLUSIVE if self.feature in PROMPTS else GateOutcome.FAIL
        else:
            outcome = GateOutcome.PASS if used <= 1 else GateOutcome.RUNNING
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
        return Finding(self, outcome, self._sentence(look, outcome), named, used)

    def _sentence(self, look: InterimAnalysis, outcome: GateOutcome) -> str:
        what = f"{_WORDS[self.feature]} PSI {look.divergence.value:.3g}"
        after = f"after {look.requests:,} canary and {look.against:,} stable requests"
        if outcome is GateOutcome.PASS:
            return f"{what}, at most {look.at_most:.3g} where {self.allowed:g} is allowed, {after}"
        if outcome is GateOutcome.RUNNING:
            return f"{what} may be as much as {look.at_most:.3g} where {self.allowed:g} is allowed, {after}"
        proof = f"{what} where {self.allowed:g} is allowed, {after} (p = {look.p_value:.1g})"
        if self.feature in PROMPTS:
            return f"the arms are asked different things, so no comparison of them is fair: {proof}"
        return f"the canary answers differently: {proof}"

    def _too_few(self) -> str:
        return (
            f"{_WORDS[self.feature]} is known of {self.requests} canary and {self.against} stable requests; "
            f"at least {self._least} are needed"
        )

    def shares(self) -> dict[str, float]:
        """How both arms answer so far, for curves: nothing is decided by them."""
        strata = self.strata.closed()
        n, shown = strata.canary_requests, SHARES.get(self.feature, {}).items()
        # Stable's as if it had been asked when the canary was.
        arms = {"canary": strata.canary, "stable": strata.expected}
        return {f"{arm}_{name}_share": float(of[at]) / n for name, at in shown for arm, of in arms.items() if n}


SHARES: Mapping[Feature, Mapping[str, int]] = {
    Feature.REFUSAL: {"refusal": 1},
    Feature.FINISH_REASON: {"finish_reason_length": 0, "finish_reason_stop": 1, "finish_reason_other": 2},
}
"""What curves show of a feature: the name of a share, and its bin."""
_WORDS = {
    Feature.PROMPT_LENGTH: "prompt length",
    Feature.LANGUAGE: "prompt language",
    Feature.LENGTH: "answer length",
    Feature.FINISH_REASON: "finish reason",
    Feature.REFUSAL: "refusals",
}


class Finding(NamedTuple):
    """What one comparison says."""

    comparison: Comparison
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
            for feature, allowed in settings.thresholds.items()
            if not (paired and feature in PROMPTS)
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
def requests_to_pass(settings: DriftGate, *, stable_per_canary: float) -> float:
    """Canary requests after which half of all canaries without any drift have passed; infinity for never.

    `stable_per_canary` is how many requests the stable arm has for each of the canary's.
    """
    # All features must pass: half the time each is luckier than this.
    luck = 0.5 ** (1 / len(settings.thresholds))
    # The first look waits for the arm that has fewer.
    requests, number = settings.min_requests / min(1.0, stable_per_canary), 1
    while requests <= MOST_REQUESTS:
        size, level = requests * stable_per_canary / (1 + stable_per_canary), PASS_LEVEL / spending(number)
        if all(_seen(each, size, luck).upper(level) <= allowed for each, allowed in settings.thresholds.items()):
            return math.ceil(requests)
        requests, number = requests * GROWTH, number + 1
    return math.inf


def _seen(feature: Feature, size: float, luck: float) -> Divergence:
    """What arms without drift look like; a share `luck` of samples of this size shows less."""
    bins = BINS_OF_NAMES if feature in NAMES else USUAL_BINS
    value = float(scipy.special.chdtri(bins - 1, 1 - luck)) / size
    return Divergence(value, bins, size, 2 * math.sqrt(value / size))
