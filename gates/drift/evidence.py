"""What the drift gate knows so far: sums over all batches and the last look at each, no matter how many came."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gates.drift.bins import Bins, Reference
from gates.drift.features import Feature
from gates.drift.levels import Sums, added, means, shares
from gates.drift.looks import Comparison, Progress, Side
from gates.drift.spec import DriftGate, Reaction, Statistic
from gates.drift.strata import Strata
from gates.evidence import DriftCounts
from gates.model import NoData

WATCHED = (Statistic.PSI, Statistic.KL, Statistic.JS)
"""Have a curve over time, whichever statistic decides."""


@dataclass(frozen=True)
class DriftEvidence:
    """Everything until now; begins with the reference alone."""

    reference: Reference | NoData
    progress: Mapping[str, Progress] = field(default_factory=dict)
    """By the comparison's name; those that nothing was counted for are not in here."""
    sums: Sums = field(default_factory=dict)
    """Of answers' numbers, for their means."""
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
        return replace(self, progress=progress, sums=added(self.sums, counts))

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


def watched(settings: DriftGate, evidence: DriftEvidence) -> dict[str, float]:
    """Divergences of all requests so far, and how both arms answer: for curves over time.

    A divergence is named by its comparison, such as `length_kl` or `users_language_psi`; beside each, `..._by_chance`
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


def _divergences(comparison: Comparison, strata: Strata) -> dict[str, float]:
    if not strata.canary_requests:
        return {}
    numbers = {}
    for statistic in dict.fromkeys((*WATCHED, comparison.allowed.statistic)):
        found = strata.divergence(statistic)
        numbers[f"{comparison.name}_{statistic}"] = found.value
        numbers[f"{comparison.name}_{statistic}_by_chance"] = found.by_chance
    return numbers


def _begin(comparison: Comparison, bins: Bins) -> Progress:
    if comparison.side is Side.ARMS:
        return Progress(Strata.begin(len(bins.reference)))
    # The reference is one sample, whenever now is: with it everything is one stratum.
    strata = Strata.begin(len(bins.reference), closes_at=math.inf)
    return Progress(strata.plus(bins.reference, (0,) * len(bins.reference)), against=sum(bins.reference))


def _in(arm: Mapping[str, tuple[int, ...]], feature: Feature, bins: Bins) -> tuple[int, ...]:
    return arm.get(feature, (0,) * len(bins.reference))
