"""What the drift gate knows so far: each comparison's counts and interim analyses, no matter how many batches came.

The few interim analyses stay valid however often the gate is asked: one is made only when the canary's requests
have grown by half, and it spends a smaller part of the error budget than the one before. When it is made depends on
how many requests came, never on what they were. Means and shares are for people: nothing is decided by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gates.analyses.drift.spec import Allowed, Bins, DriftGate, DriftReference, Feature, Reaction
from gates.evidence.batch import DriftCounts
from gates.model import NoData
from gates.stats.divergence import Divergence, Statistic, Strata

GROWTH = 1.5
"""Of the canary's requests between two looks."""

PASS_LEVEL = 0.05
"""Chance of passing when the true divergence is just what is allowed; for one comparison, over all its looks."""


class Side(StrEnum):
    """What is compared with what."""

    ARMS = "arms"
    """The canary with the stable arm at the same time."""
    USERS = "users"
    """Both arms together with the reference window."""


@dataclass(frozen=True)
class DriftComparison:
    """One question of the gate."""

    side: Side
    feature: Feature
    allowed: Allowed
    is_input: bool

    @property
    def threshold(self) -> float:
        """Of the divergence."""
        return self.allowed.threshold(self.feature)

    @property
    def name(self) -> str:
        """Names its numbers: `length`, or `users_language` for what users ask in general."""
        return str(self.feature) if self.side is Side.ARMS else f"users_{self.feature}"


@dataclass(frozen=True)
class InterimAnalysis:
    """What was seen when it was looked."""

    number: int
    """1 is the first."""
    requests: int
    """Of the canary; of both arms on the side of the users."""
    against: int
    """Of the stable arm, or of the reference."""
    divergence: Divergence
    p_value: float
    """That the true divergence is within what is allowed; of this look alone."""
    at_most: float
    """What the true divergence is below, as sure as `PASS_LEVEL` says of all looks together."""


def spending(number: int) -> float:
    """By how much a look's p-value grows because there are others: 1 over its share of the budget.

    The shares 6 / (pi k)^2 of all looks k = 1, 2, ... sum to 1.
    """
    return (math.pi * number) ** 2 / 6


@dataclass(frozen=True)
class ComparisonProgress:
    """Of one comparison."""

    strata: Strata
    look: InterimAnalysis | None = None
    p_value: float = 1.0
    """The least of all looks so far, each corrected by `spending`: valid at any time."""
    requests: int = 0
    """Counted so far, looked at or not."""
    against: int = 0

    def plus(
        self, comparison: DriftComparison, minimum: int, against: tuple[int, ...], seen: tuple[int, ...]
    ) -> ComparisonProgress:
        """Count a batch, and look if it is time."""
        grown = replace(
            self,
            strata=self.strata.plus(against, seen),
            requests=self.requests + sum(seen),
            against=self.against + sum(against),
        )
        due = GROWTH * self.look.requests if self.look else minimum
        return grown.looked(comparison, minimum) if grown.requests >= due else grown

    def looked(self, comparison: DriftComparison, minimum: int) -> ComparisonProgress:
        """Look now, unless there is too little, or nothing new."""
        strata = self.strata.closed()
        if min(strata.canary_requests, strata.stable_requests) < minimum:
            return self
        if self.look and self.look.requests == self.requests:
            return self
        number = self.look.number + 1 if self.look else 1
        divergence = strata.divergence(comparison.allowed.statistic)
        p_value = max(divergence.chance_above(comparison.threshold), strata.chance())
        at_most = divergence.upper(PASS_LEVEL / spending(number))
        look = InterimAnalysis(number, self.requests, self.against, divergence, p_value, at_most)
        return replace(self, look=look, p_value=min(self.p_value, p_value * spending(number)))


MEANS: Mapping[Feature, str] = {Feature.LENGTH: "mean_length_tokens", Feature.ENTROPY: "mean_entropy_nats"}
"""Features with a mean, and what it is called."""

Sums = Mapping[str, tuple[float, int]]
"""By the name of a mean, such as `canary_mean_length_tokens`: the sum so far, and of how many answers."""


def added(sums: Sums, counts: DriftCounts) -> Sums:
    """The sums with one more batch; a batch without totals, as others may send them, adds nothing."""
    grown = dict(sums)
    arms = {"stable": (counts.stable, counts.stable_totals), "canary": (counts.canary, counts.canary_totals)}
    for arm, (bins, totals) in arms.items():
        for feature, noun in MEANS.items():
            if feature in totals:
                total, answers = grown.get(f"{arm}_{noun}", (0.0, 0))
                grown[f"{arm}_{noun}"] = (total + totals[feature], answers + sum(bins.get(feature, ())))
    return grown


def means(sums: Sums) -> dict[str, float]:
    """Of every sum that has answers."""
    return {name: total / answers for name, (total, answers) in sums.items() if answers}


def shares(feature: Feature, bins: Bins, strata: Strata) -> dict[str, float]:
    """Of answers with each name, canary and stable; stable's as if it had been asked when the canary was."""
    closed = strata.closed()
    if not closed.canary_requests:
        return {}
    arms = {"canary": closed.canary / closed.canary_requests, "stable": closed.expected / closed.canary_requests}
    return {
        f"{arm}_{name}_share": float(found[place])
        for name, place in _places(feature, bins)
        for arm, found in arms.items()
    }


def _places(feature: Feature, bins: Bins) -> Iterator[tuple[str, int]]:
    """What there are shares of, and in which bin."""
    if feature is Feature.REFUSAL:
        # Where the reference has none, the bin of all other names holds nothing else.
        yield "refusal", bins.place("true")
    elif feature is Feature.FINISH_REASON:
        yield from ((f"{feature}_{name}", place) for place, name in enumerate((*bins.names, "other")))


WATCHED = (Statistic.PSI, Statistic.KL, Statistic.JS)
"""Have a curve over time, whichever statistic decides."""


@dataclass(frozen=True)
class DriftEvidence:
    """Everything until now; begins with the reference alone."""

    reference: DriftReference | NoData
    progress: Mapping[str, ComparisonProgress] = field(default_factory=dict)
    """By the comparison's name; those that nothing was counted for are not in here."""
    sums: Sums = field(default_factory=dict)
    """Of answers' numbers, for their means."""

    def plus(self, settings: DriftGate, counts: DriftCounts) -> DriftEvidence:
        """Count one batch; without a reference there are no bins to count in."""
        if isinstance(self.reference, NoData):
            return self
        progress = dict(self.progress)
        for comparison in self.comparisons(settings):
            bins = self.reference.bins.get(comparison.feature)
            if bins is None:
                continue
            before = progress.get(comparison.name) or _begin(comparison, bins)
            stable, canary = (_in(arm, comparison.feature, bins) for arm in (counts.stable, counts.canary))
            if comparison.side is Side.USERS:
                stable, canary = (0,) * len(stable), tuple(a + b for a, b in zip(stable, canary, strict=True))
            progress[comparison.name] = before.plus(comparison, settings.min_requests, stable, canary)
        return replace(self, progress=progress, sums=added(self.sums, counts))

    def comparisons(self, settings: DriftGate) -> list[DriftComparison]:
        """Every question that the settings ask; those about the users only with a window to compare with."""
        asked = []
        for part, is_input in ((settings.inputs, True), (settings.outputs, False)):
            if part:
                asked += [DriftComparison(Side.ARMS, feature, part, is_input) for feature in part.features]
        has_window = isinstance(self.reference, DriftReference) and self.reference.is_window
        if settings.inputs and has_window and settings.since_reference is not Reaction.IGNORE:
            asked += [
                DriftComparison(Side.USERS, feature, settings.inputs, True) for feature in settings.inputs.features
            ]
        return asked


def watched(settings: DriftGate, evidence: DriftEvidence) -> dict[str, float]:
    """Divergences of all requests so far, and how both arms answer: for curves over time.

    A divergence is named by its comparison, such as `length_kl` or `users_language_psi`; next to each, `..._by_chance`
    is what no drift at all would show on average with as many requests. What is not known has no number.
    """
    numbers = means(evidence.sums)
    for comparison in evidence.comparisons(settings):
        progress = evidence.progress.get(comparison.name)
        if progress is None or isinstance(evidence.reference, NoData):
            continue
        numbers |= _divergences(comparison, progress.strata.closed())
        if comparison.side is Side.ARMS:
            numbers |= shares(comparison.feature, evidence.reference.bins[comparison.feature], progress.strata)
    return numbers


def _divergences(comparison: DriftComparison, strata: Strata) -> dict[str, float]:
    if not strata.canary_requests:
        return {}
    numbers = {}
    for statistic in dict.fromkeys((*WATCHED, comparison.allowed.statistic)):
        found = strata.divergence(statistic)
        numbers[f"{comparison.name}_{statistic}"] = found.value
        numbers[f"{comparison.name}_{statistic}_by_chance"] = found.by_chance
    return numbers


def _begin(comparison: DriftComparison, bins: Bins) -> ComparisonProgress:
    if comparison.side is Side.ARMS:
        return ComparisonProgress(Strata.begin(len(bins.reference)))
    # The reference is one sample, whenever now is: with it everything is one stratum.
    strata = Strata.begin(len(bins.reference), closes_at=math.inf)
    return ComparisonProgress(strata.plus(bins.reference, (0,) * len(bins.reference)), against=sum(bins.reference))


def _in(arm: Mapping[str, tuple[int, ...]], feature: Feature, bins: Bins) -> tuple[int, ...]:
    return arm.get(feature, (0,) * len(bins.reference))
