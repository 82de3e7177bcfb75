"""What the drift gate knows so far: sums over all batches and the last look at each, no matter how many came."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gates.drift.bins import Bins, Reference
from gates.drift.features import Feature
from gates.drift.looks import Comparison, Progress, Side
from gates.drift.spec import DriftGate, Reaction
from gates.drift.strata import Strata
from gates.evidence import DriftCounts
from gates.model import NoData


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


def _in(arm: Mapping[str, tuple[int, ...]], feature: Feature, bins: Bins) -> tuple[int, ...]:
    return arm.get(feature, (0,) * len(bins.reference))
