"""What the drift gate knows so far: sums over all batches, and what was seen at its few looks.

However often it is asked, it looks only when the canary's requests have grown by half, and spends a
smaller part of its error budget at each look. That keeps every test valid: the looks depend on how
many requests came, never on what they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gates.divergence import Divergence
from gates.drift_bins import Bins, DriftCounts, Reference
from gates.drift_spec import Allowed, DriftGate, Reaction
from gates.features import Feature
from gates.model import NoData
from gates.strata import Strata

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
class Comparison:
    """One question of the gate."""

    side: Side
    feature: Feature
    allowed: Allowed
    is_input: bool

    @property
    def name(self) -> str:
        """Names its numbers: `length`, or `users_language` for what users ask in general."""
        return str(self.feature) if self.side is Side.ARMS else f"users_{self.feature}"


@dataclass(frozen=True)
class Look:
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
class Progress:
    """Of one comparison."""

    strata: Strata
    look: Look | None = None
    p_value: float = 1.0
    """The least of all looks so far, each corrected by `spending`: valid at any time."""
    requests: int = 0
    """Counted so far, looked at or not."""
    against: int = 0

    def plus(self, comparison: Comparison, minimum: int, against: tuple[int, ...], seen: tuple[int, ...]) -> Progress:
        """Count a batch, and look if it is time."""
        grown = replace(
            self,
            strata=self.strata.plus(against, seen),
            requests=self.requests + sum(seen),
            against=self.against + sum(against),
        )
        due = GROWTH * self.look.requests if self.look else minimum
        return grown.looked(comparison, minimum) if grown.requests >= due else grown

    def looked(self, comparison: Comparison, minimum: int) -> Progress:
        """Look now, unless there is too little, or nothing new."""
        strata = self.strata.closed()
        if min(strata.canary_requests, strata.stable_requests) < minimum:
            return self
        if self.look and self.look.requests == self.requests:
            return self
        number = self.look.number + 1 if self.look else 1
        divergence = strata.divergence(comparison.allowed.statistic)
        p_value = max(divergence.chance_above(comparison.allowed.threshold), strata.chance())
        at_most = divergence.upper(PASS_LEVEL / spending(number))
        look = Look(number, self.requests, self.against, divergence, p_value, at_most)
        return replace(self, look=look, p_value=min(self.p_value, p_value * spending(number)))


@dataclass(frozen=True)
class DriftEvidence:
    """Everything until now; begins with the reference alone."""

    reference: Reference | NoData
    progress: Mapping[str, Progress] = field(default_factory=dict)
    """By the comparison's name; those that nothing was counted for are not in here."""
    same_prompts: bool = False
    """Both arms answer the same prompts (pairs): what they are asked cannot differ, and is not compared."""

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
        return replace(self, progress=progress)

    def comparisons(self, settings: DriftGate) -> list[Comparison]:
        """Every question that the settings ask; those about the users only with a window to compare with."""
        asked = []
        for part, is_input in ((settings.inputs, True), (settings.outputs, False)):
            if part and not (is_input and self.same_prompts):
                asked += [Comparison(Side.ARMS, feature, part, is_input) for feature in part.features]
        has_window = isinstance(self.reference, Reference) and self.reference.is_window and not self.same_prompts
        if settings.inputs and has_window and settings.since_reference is not Reaction.IGNORE:
            asked += [Comparison(Side.USERS, feature, settings.inputs, True) for feature in settings.inputs.features]
        return asked


def divergences(settings: DriftGate, evidence: DriftEvidence) -> dict[str, float]:
    """The divergences of all requests so far, for a curve over time: `length_psi`, `users_language_psi`.

    Beside each, `..._by_chance` is what no drift at all would show on average with as many requests. A
    comparison without data has no number.
    """
    numbers: dict[str, float] = {}
    for comparison in evidence.comparisons(settings):
        progress = evidence.progress.get(comparison.name)
        strata = progress.strata.closed() if progress else None
        if strata and strata.canary_requests:
            found = strata.divergence(comparison.allowed.statistic)
            numbers[f"{comparison.name}_{found.statistic}"] = found.value
            numbers[f"{comparison.name}_{found.statistic}_by_chance"] = found.by_chance
    return numbers


def _begin(comparison: Comparison, bins: Bins) -> Progress:
    if comparison.side is Side.ARMS:
        return Progress(Strata.begin(len(bins.reference)))
    # The reference is one sample, whenever now is: with it everything is one stratum.
    strata = Strata.begin(len(bins.reference), closes_at=math.inf)
    return Progress(strata.plus(bins.reference, (0,) * len(bins.reference)), against=sum(bins.reference))


def _in(arm: Mapping[Feature, tuple[int, ...]], feature: Feature, bins: Bins) -> tuple[int, ...]:
    return arm.get(feature, (0,) * len(bins.reference))
