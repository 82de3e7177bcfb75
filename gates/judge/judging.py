"""How a pair of answers is put to a judge and what its opinions are worth: lots, blinding, composite scores.

Which arm stands first is drawn for every pair, so that a liking for a place is noise and no bias; on the
control's pairs both orders are asked, where it cancels exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean

from gates.evidence import Score
from gates.judge.rubric import DimensionScores, Opinion
from gates.judge.spec import Dimension, JudgeGate, Weight
from tidegate.core.model import Value


class Lot(Value):
    """What chance decided for one pair."""

    judged: bool
    """Whether it is in the sample."""
    control: bool
    """Whether it is asked again, swapped, and beside a foil."""
    canary_first: bool
    foil: float
    """Where in what is kept of other prompts the foil is taken from; 0 to 1, without 1."""


def draw(seed: int, key: str, settings: JudgeGate) -> Lot:
    """Draw for the pair that `key` names; depends on nothing else, so that a pair is judged alike in any order."""
    random = Random(f"{seed}:{key}")
    return Lot(
        judged=random.random() < settings.sample,
        control=random.random() < settings.control.share,
        canary_first=random.random() < 0.5,
        foil=random.random(),
    )


class ArmScores(Value):
    """One reply of a judge with the blinds taken off."""

    stable: DimensionScores
    canary: DimensionScores


class JudgedPair(Value):
    """What both answers to one prompt are worth."""

    stable: Score
    """Composite, 0 to 1; goes into `PairedReply.score`."""
    canary: Score
    stable_dimensions: DimensionScores
    canary_dimensions: DimensionScores
    asked: int
    """Opinions that this is the mean of."""


def unblind(opinion: Opinion, *, canary_first: bool) -> ArmScores:
    """Give each side of an opinion back to its arm."""
    if canary_first:
        return ArmScores(stable=opinion.second, canary=opinion.first)
    return ArmScores(stable=opinion.first, canary=opinion.second)


def composite(scores: DimensionScores, weights: Mapping[Dimension, Weight]) -> float:
    """The weighted mean over the dimensions that have a weight; 0 to 1."""
    total = sum(weights.values())
    mean = sum(weight * scores[dimension] for dimension, weight in weights.items()) / total
    # Rounding may leave a mean of ones a hair above 1, which is no score.
    return min(1.0, max(0.0, mean))


def drop(scores: ArmScores, weights: Mapping[Dimension, Weight]) -> float:
    """By how much the canary's composite is below stable's; -1 to 1."""
    return composite(scores.stable, weights) - composite(scores.canary, weights)


def settle(opinions: Sequence[ArmScores], weights: Mapping[Dimension, Weight], *, same_text: bool) -> JudgedPair:
    """The mean of one opinion or more; two answers of the same words get the same scores.

    Raises:
        ValueError: when there is no opinion.
    """
    stable = _mean([scores.stable for scores in opinions])
    canary = _mean([scores.canary for scores in opinions])
    # A difference between equal words is the judge's noise: known to be none of the canary's doing.
    if same_text:
        stable = canary = _mean([stable, canary])
    return JudgedPair(
        stable=composite(stable, weights),
        canary=composite(canary, weights),
        stable_dimensions=stable,
        canary_dimensions=canary,
        asked=len(opinions),
    )


def _mean(scores: Sequence[DimensionScores]) -> DimensionScores:
    if not scores:
        raise ValueError("no opinion to take the mean of")
    return {dimension: fmean(one[dimension] for one in scores) for dimension in scores[0]}
