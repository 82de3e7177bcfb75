"""Asks whether users ask both arms the same kind of things, and whether the canary answers in the same kind of way.

Proven drift of answers is the canary's doing: `fail`. When the arms are asked different things, no
comparison between them is fair, the other gates' neither: `inconclusive`, at once. When users ask both
other things than before, that is the world: a warning, unless the settings hold the gate for it.

The few interim analyses stay valid however often the gate is asked: one is made only when the canary's requests
have grown by half, and it spends a smaller part of the error budget than the one before. When it is made depends on
how many requests came, never on what they were. Means and shares are for people: nothing is decided by them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import scipy  # It loads `scipy.stats`, which takes a second, only when that is used.
from pydantic import BeforeValidator, Field

from gates.analyses.base import Conditions, Monitor, MonitoredGate, StageUse
from gates.analyses.drift_reference import NUMERIC, PROMPTS, Bins, DriftReference, Feature
from gates.evidence.batch import Batch, DriftCounts
from gates.model import GateOutcome, NoData, Verdict
from gates.stats.divergence import STRATUM_REQUESTS, Divergence, Strata
from gates.traffic import ArrivalRates, Assumptions
from tidegate.core.errors import UsageError
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.units import Duration


class Reaction(StrEnum):
    """What a drift that is not the canary's doing means for the gate."""

    IGNORE = "ignore"
    """Not measured."""
    WARN = "warn"
    """Measured and said; decides nothing."""
    HOLD = "hold"
    """The gate cannot pass: what is measured now says little about the traffic that the reference saw."""


DEFAULT_PSI = {Feature.FINISH_REASON: 0.1, Feature.REFUSAL: 0.1}
"""Where no threshold is set; else 0.2, by custom the beginning of a change that matters. What is rare must be allowed
less: refusals that grow from 3 % to 15 % are no more than 0.2."""

Input = Literal[Feature.PROMPT_LENGTH, Feature.LANGUAGE, Feature.TOPIC]
Output = Literal[Feature.LENGTH, Feature.ENTROPY, Feature.FINISH_REASON, Feature.REFUSAL]


class Allowed(SpecModel):
    """Features that are looked at, and how far each may move."""

    psi: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The population stability index that each may have at most."""

    def threshold(self, feature: Feature) -> float:
        """What it may be at most."""
        return DEFAULT_PSI.get(feature, 0.2) if self.psi is None else self.psi


class InputsAllowed(Allowed):
    """How far what users ask may differ: between the arms, and from the reference window."""

    features: tuple[Input, ...] = Field(default=(Feature.PROMPT_LENGTH, Feature.LANGUAGE), min_length=1)


class OutputsAllowed(Allowed):
    """How far the canary's answers may differ from those of the stable arm at the same time."""

    features: tuple[Output, ...] = Field(default=(Feature.LENGTH, Feature.FINISH_REASON, Feature.REFUSAL), min_length=1)


def _features(value: Any) -> Any:
    # `outputs: [length, entropy]` names the features and leaves the threshold as it is.
    return {"features": value} if isinstance(value, list | tuple) else value


class DriftGate(MonitoredGate):
    """Users must ask both arms the same kind of things, and the canary must answer in the same kind of way."""

    name = "drift"
    scale = "times"
    stages = (StageUse("canary"),)
    several = False

    inputs: Annotated[InputsAllowed, BeforeValidator(_features)] | None = InputsAllowed()
    """Absent (`null`): what users ask is not looked at."""
    outputs: Annotated[OutputsAllowed, BeforeValidator(_features)] | None = OutputsAllowed()
    reference: Duration = timedelta(hours=1)
    """How long before the delivery the reference window begins; it ends where the delivery begins."""
    since_reference: Reaction = Reaction.WARN
    """When users ask both arms other things than in the reference window: the world's doing, not the canary's."""
    bins: int = Field(default=10, ge=2, le=50)
    """Of a number: equally full in the reference."""
    min_requests: int = Field(default=100, ge=20)
    """On each side of a comparison before its first look, and in the reference before its bins are frozen."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A gate that looks at nothing could say nothing."""
        if self.inputs is None and self.outputs is None:
            yield SpecConflict((), "neither inputs nor outputs", "at least one of them")

    @property
    def thresholds(self) -> Mapping[Feature, float]:
        """By feature that is looked at, what its divergence may be at most."""
        parts = [part for part in (self.inputs, self.outputs) if part]
        return {feature: part.threshold(feature) for part in parts for feature in part.features}

    def monitor(self, conditions: Conditions) -> DriftMonitor:
        return DriftMonitor(self, conditions.reference, rollback=conditions.rollback)

    def passes(self, arrivals: ArrivalRates, assumed: Assumptions, conditions: Conditions) -> float:
        """As `MonitoredGate`; traffic has no drift that could be assumed."""
        _ = assumed, conditions
        return requests_to_pass(self, stable_per_canary=arrivals.stable / arrivals.canary) / arrivals.canary

    def fails(self, worse: float, arrivals: ArrivalRates, conditions: Conditions) -> float:
        ratio = arrivals.stable / arrivals.canary
        needed = requests_to_fail(self, times=worse, stable_per_canary=ratio, alpha=conditions.rollback)
        return needed / arrivals.canary


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
    """Of the canary; of both arms where they are compared with the reference window."""
    against: int
    """Of the stable arm, or of the reference."""
    divergence: Divergence
    p_value: float
    """That the true divergence is within what is allowed: the least of all looks so far, each corrected by `spending`,
    so valid at any time."""
    at_most: float
    """What the true divergence is below, as sure as `PASS_LEVEL` says of all looks together."""


class Comparison:
    """One question of the gate, and what is known of it."""

    def __init__(self, feature: Feature, bins: Bins | None, *, allowed: float, least: int, users: bool = False) -> None:
        """Compare the arms at the same time or, of `users`, both arms together with the reference window.

        There are no `bins` of a feature that too few requests of the reference have.
        """
        self.feature, self.bins, self.allowed, self.users = feature, bins, allowed, users
        self.name = f"users_{feature}" if users else str(feature)
        self._least = least
        self.look: InterimAnalysis | None = None
        self.requests = self.against = 0
        """Counted so far, looked at or not."""
        seen = bins.reference if bins else ()
        # The reference is one sample, whenever now is: with it everything is one stratum.
        self.strata = Strata.begin(len(seen), closes_at=math.inf if users else STRATUM_REQUESTS)
        if users:
            self.strata, self.against = self.strata.plus(seen, (0,) * len(seen)), sum(seen)

    def take(self, counts: DriftCounts) -> None:
        """Count a batch, and look if it is time."""
        if self.bins is None:
            return
        none = (0,) * len(self.bins.reference)
        stable, canary = (arm.get(self.feature, none) for arm in (counts.stable, counts.canary))
        if self.users:
            stable, canary = none, tuple(a + b for a, b in zip(stable, canary, strict=True))
        self.strata = self.strata.plus(stable, canary)
        self.requests += sum(canary)
        self.against += sum(stable)
        if self.requests >= (GROWTH * self.look.requests if self.look else self._least):
            self.look = self.looked()

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
        named = {f"{self.name}_{number}": value for number, value in numbers.items()}
        return Finding(self, outcome, self._sentence(look, outcome), named, used)

    def _sentence(self, look: InterimAnalysis, outcome: GateOutcome) -> str:
        what = f"{_WORDS[self.feature]} PSI {look.divergence.value:.3g}"
        if self.users:
            after = f"after {look.requests:,} requests against {look.against:,} of the reference window"
        else:
            after = f"after {look.requests:,} canary and {look.against:,} stable requests"
        if outcome is GateOutcome.PASS:
            return f"{what}, at most {look.at_most:.3g} where {self.allowed:g} is allowed, {after}"
        if outcome is GateOutcome.RUNNING:
            return f"{what} may be as much as {look.at_most:.3g} where {self.allowed:g} is allowed, {after}"
        proof = f"{what} where {self.allowed:g} is allowed, {after} (p = {look.p_value:.1g})"
        if self.users:
            return f"users ask other things than in the reference window: {proof}"
        if self.feature in PROMPTS:
            return f"the arms are asked different things, so no comparison of them is fair: {proof}"
        return f"the canary answers differently: {proof}"

    def _too_few(self) -> str:
        what = _WORDS[self.feature]
        if self.bins is None:
            return f"{what} is known of fewer than {self._least} requests of the reference"
        seen = "requests" if self.users else f"canary and {self.against} stable requests"
        return f"{what} is known of {self.requests} {seen}; at least {self._least} are needed"

    def curves(self) -> dict[str, float]:
        """Divergences of all requests so far, each with what chance alone makes of it, and how both arms answer."""
        strata = self.strata.closed()
        n = strata.canary_requests
        if not n:
            return {}
        numbers = {}
        for statistic, (value, by_chance) in strata.curves.items():
            numbers[f"{self.name}_{statistic}"] = value
            numbers[f"{self.name}_{statistic}_by_chance"] = by_chance
        # Stable's as if it had been asked when the canary was.
        arms = {"canary": strata.canary / n, "stable": strata.expected / n}
        return numbers | {
            f"{arm}_{name}_share": float(shares[place])
            for name, place in self._places()
            for arm, shares in arms.items()
        }

    def _places(self) -> Iterator[tuple[str, int]]:
        """What there are shares of, and in which bin."""
        if self.bins and self.feature is Feature.REFUSAL:
            # Where the reference has none, the bin of all other names holds nothing else.
            yield "refusal", self.bins.place("true")
        elif self.bins and self.feature is Feature.FINISH_REASON:
            names = (*self.bins.names, "other")
            yield from ((f"{self.feature}_{name}", place) for place, name in enumerate(names))


_WORDS = {
    Feature.PROMPT_LENGTH: "prompt length",
    Feature.LANGUAGE: "prompt language",
    Feature.TOPIC: "prompt topic",
    Feature.LENGTH: "answer length",
    Feature.ENTROPY: "token entropy",
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


MEANS: Mapping[Feature, str] = {Feature.LENGTH: "mean_length_tokens", Feature.ENTROPY: "mean_entropy_nats"}
"""Features with a mean, and what it is called."""


class DriftMonitor(Monitor):
    """Adds up what batches count, and judges it when asked."""

    def __init__(self, settings: DriftGate, reference: DriftReference | NoData, *, rollback: float) -> None:
        """`reference` was frozen with the terms.

        `rollback` is the gate's share of the delivery's error budget: the chance of ending a delivery over divergences
        that are all within what is allowed, however many features and however often it is asked.
        """
        self._settings, self._reference = settings, reference
        bins = reference.bins if isinstance(reference, DriftReference) else {}
        least = settings.min_requests
        self.comparisons = [
            Comparison(feature, bins.get(feature), allowed=allowed, least=least)
            for feature, allowed in settings.thresholds.items()
        ]
        if bins and settings.since_reference != Reaction.IGNORE:
            self.comparisons += [
                Comparison(arms.feature, arms.bins, allowed=arms.allowed, least=least, users=True)
                for arms in self.comparisons
                if arms.feature in PROMPTS
            ]
        self._level = rollback / len(self.comparisons)
        self._sums: defaultdict[str, float] = defaultdict(float)
        """By the name of a mean, such as `canary_mean_length_tokens`."""
        self._answers: Counter[str] = Counter()

    def refuse(self, batch: Batch) -> None:
        """Counts must lie in the frozen bins.

        Raises:
            UsageError: when a feature has another number of bins than the reference.
        """
        if batch.drift is None or isinstance(self._reference, NoData):
            return
        for feature, bins in self._reference.bins.items():
            for arm in (batch.drift.stable, batch.drift.canary):
                found = len(arm.get(feature, bins.reference))
                if found != len(bins.reference):
                    raise UsageError(
                        f"a batch counts {feature} in {found} bins; the reference has {len(bins.reference)}",
                        hint="count with the bins of the reference",
                    )

    def take(self, batch: Batch, seconds: float) -> None:
        """A batch without counts in bins says nothing of drift; without a reference there are no bins to count in."""
        _ = seconds
        if batch.drift is None or isinstance(self._reference, NoData):
            return
        for comparison in self.comparisons:
            comparison.take(batch.drift)
        counted = {"stable": (batch.drift.stable, batch.drift.stable_totals)}
        counted["canary"] = (batch.drift.canary, batch.drift.canary_totals)
        for arm, (bins, totals) in counted.items():
            # A batch without totals, as others may send them, adds nothing.
            for feature in MEANS.keys() & totals.keys():
                self._sums[f"{arm}_{MEANS[feature]}"] += totals[feature]
                self._answers[f"{arm}_{MEANS[feature]}"] += sum(bins.get(feature, ()))

    def restart(self) -> None:
        """What was seen at another weight is about the same answers: it stays."""

    def verdict(self, *, deadline_passed: bool) -> Verdict:
        """Of all batches so far; at the deadline a last look takes what is there, however little it grew."""
        waiting = GateOutcome.INCONCLUSIVE if deadline_passed else GateOutcome.RUNNING
        if isinstance(self._reference, NoData):
            reason = f"there are no bins to count in: {self._reference.reason}"
            return Verdict(gate=self._settings.name, outcome=waiting, reason=reason)
        found = [
            each.finding(each.looked() if deadline_passed else each.look, self._level) for each in self.comparisons
        ]
        outcome, reason = self._decided(found)
        numbers = {name: value for finding in found for name, value in finding.numbers.items()}
        auxiliary = {name: value for name, value in self.curves().items() if name not in numbers}
        outcome = waiting if outcome is GateOutcome.RUNNING else outcome
        return Verdict(gate=self._settings.name, outcome=outcome, reason=reason, numbers=numbers, auxiliary=auxiliary)

    def _decided(self, findings: Sequence[Finding]) -> tuple[GateOutcome, str]:
        """The finding that decides, then what is said of the users."""
        arms = [finding for finding in findings if not finding.comparison.users]
        moved = [each for each in findings if each.comparison.users and each.outcome is GateOutcome.INCONCLUSIVE]
        # Different questions first: answers to them may well differ, and that is not the canary's doing.
        unfair = [finding for finding in arms if finding.outcome is GateOutcome.INCONCLUSIVE]
        worst = max(finding.outcome for finding in arms)
        first = max(unfair or [each for each in arms if each.outcome is worst], key=lambda finding: finding.used)
        outcome, reason = first.outcome, first.sentence
        if outcome is GateOutcome.PASS:
            reason = f"the arms are alike in all {len(arms)} features; the least sure: {reason}"
            if moved and self._settings.since_reference is Reaction.HOLD:
                outcome = GateOutcome.INCONCLUSIVE
        return outcome, "; ".join([reason, *(finding.sentence for finding in moved)])

    def curves(self) -> dict[str, float]:
        """For curves over time; what is not known has no number."""
        means = {name: total / self._answers[name] for name, total in self._sums.items() if self._answers[name]}
        return means | {name: value for each in self.comparisons for name, value in each.curves().items()}


BINS_OF_NAMES = 3
"""A feature whose values are names has few common ones."""
MOST_REQUESTS = 10_000_000
"""Of the canary; who needs more needs another threshold."""


@lru_cache(maxsize=1024)
def requests_to_pass(settings: DriftGate, *, stable_per_canary: float) -> float:
    """Canary requests after which half of all canaries without any drift have passed; infinity for never.

    `stable_per_canary` is how many requests the stable arm has for each of the canary's; 19 at a weight of 5 %.
    """
    # All features must pass: half the time each is luckier than this.
    luck = 0.5 ** (1 / len(settings.thresholds))

    def passes(feature: Feature, allowed: float, number: int, size: float) -> bool:
        return _seen(settings, feature, size, true=0, luck=luck).upper(PASS_LEVEL / spending(number)) <= allowed

    return _slowest(settings, stable_per_canary, passes)


@lru_cache(maxsize=1024)
def requests_to_fail(settings: DriftGate, *, times: float, stable_per_canary: float, alpha: float) -> float:
    """Canary requests after which a divergence of `times` what is allowed fails, half the time; infinity for never.

    `alpha` is the gate's share of the error budget. The answer is for the feature that needs most.
    """
    # What users ask is compared once more, with the reference window.
    comparisons = len(settings.thresholds) + len(settings.inputs.features if settings.inputs else ())

    def fails(feature: Feature, allowed: float, number: int, size: float) -> bool:
        seen = _seen(settings, feature, size, true=times * allowed, luck=0.5)
        return seen.chance_above(allowed) * spending(number) <= alpha / comparisons

    return _slowest(settings, stable_per_canary, fails)


def _slowest(
    settings: DriftGate, stable_per_canary: float, decided: Callable[[Feature, float, int, float], bool]
) -> float:
    """Requests until the feature that needs most is decided."""
    return max(
        next(
            (
                requests
                for number, requests, size in _looks(settings, stable_per_canary)
                if decided(feature, allowed, number, size)
            ),
            math.inf,
        )
        for feature, allowed in settings.thresholds.items()
    )


def _looks(settings: DriftGate, stable_per_canary: float) -> Iterator[tuple[int, int, float]]:
    """Each look's number, the canary's requests at it, and n*m/(n+m) of both arms."""
    # The first look waits for the arm that has fewer.
    requests, number = settings.min_requests / min(1.0, stable_per_canary), 1
    while requests <= MOST_REQUESTS:
        yield number, math.ceil(requests), requests * stable_per_canary / (1 + stable_per_canary)
        requests, number = requests * GROWTH, number + 1


def _seen(settings: DriftGate, feature: Feature, size: float, *, true: float, luck: float) -> Divergence:
    """What a true divergence looks like; a share `luck` of samples of this size shows less."""
    bins = settings.bins if feature in NUMERIC else BINS_OF_NAMES
    value = float(scipy.stats.ncx2.ppf(luck, bins - 1, true * size)) / size
    return Divergence(value, bins, size, 2 * math.sqrt(max(true, value) / size))
