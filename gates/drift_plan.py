"""How many requests a drift gate needs, before any is sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from gates.divergence import CHANCE_SCALE, Divergence
from gates.drift_evidence import GROWTH, PASS_LEVEL, spending
from gates.drift_spec import Allowed, DriftGate, Statistic
from gates.features import NUMERIC, Feature

BINS_OF_NAMES = 3
"""A feature whose values are names has few common ones."""
MOST_REQUESTS = 10_000_000
"""Of the canary; who needs more needs another threshold."""


def requests_to_pass(settings: DriftGate, *, stable_per_canary: float) -> int | None:
    """Canary requests after which one without any drift typically passes; None when no number is enough.

    `stable_per_canary` is how many requests the stable arm has for each of the canary's; 19 at a weight of 5 %.
    """

    def passes(part: Allowed, seen: Divergence, number: int) -> bool:
        return seen.upper(PASS_LEVEL / spending(number)) <= part.threshold

    return _slowest(settings, stable_per_canary, 0, passes)


def requests_to_fail(settings: DriftGate, *, times: float, stable_per_canary: float, alpha: float) -> int | None:
    """Canary requests after which a divergence of `times` what is allowed typically fails; None when never.

    `alpha` is the gate's share of the error budget, as in `judge_drift`.
    """
    # What users ask is compared once more, with the reference window.
    comparisons = len(_asked(settings)) + (len(settings.inputs.features) if settings.inputs else 0)

    def fails(part: Allowed, seen: Divergence, number: int) -> bool:
        return seen.chance_above(part.threshold) * spending(number) <= alpha / comparisons

    return _slowest(settings, stable_per_canary, times, fails)


def _slowest(
    settings: DriftGate, stable_per_canary: float, times: float, decided: Callable[[Allowed, Divergence, int], bool]
) -> int | None:
    """Requests until the feature that needs most is decided, when each drifts by `times` what it may."""
    most = 0
    for part, feature in _asked(settings):
        for number, requests, size in _looks(settings, stable_per_canary):
            if decided(part, _typical(settings, part, feature, size, times * part.threshold), number):
                most = max(most, requests)
                break
        else:
            return None
    return most


def _asked(settings: DriftGate) -> list[tuple[Allowed, Feature]]:
    parts = [part for part in (settings.inputs, settings.outputs) if part]
    return [(part, feature) for part in parts for feature in part.features]


def _looks(settings: DriftGate, stable_per_canary: float) -> Iterator[tuple[int, int, float]]:
    """Each look's number, the canary's requests at it, and n*m/(n+m) of both arms."""
    # The first look waits for the arm that has fewer.
    requests, number = settings.min_requests / min(1.0, stable_per_canary), 1
    while requests <= MOST_REQUESTS:
        yield number, math.ceil(requests), requests * stable_per_canary / (1 + stable_per_canary)
        requests, number = requests * GROWTH, number + 1


def _typical(settings: DriftGate, part: Allowed, feature: Feature, size: float, true: float) -> Divergence:
    """What is seen of a true divergence, on average."""
    bins = settings.bins if feature in NUMERIC else BINS_OF_NAMES
    scale = CHANCE_SCALE.get(part.statistic, 1)
    error = 0.5 if part.statistic is Statistic.KS else 2 * math.sqrt(true / scale)
    nothing = Divergence(part.statistic, 0.0, bins, size, error / math.sqrt(size))
    return replace(nothing, value=true + nothing.by_chance)
