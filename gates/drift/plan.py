"""How many requests a drift gate needs, before any is sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import scipy  # It loads `scipy.stats`, which takes a second, only when that is used.

from gates.drift.divergence import CHANCE_SCALE, Divergence
from gates.drift.features import NUMERIC, Feature
from gates.drift.looks import GROWTH, PASS_LEVEL, spending
from gates.drift.spec import Allowed, DriftGate, Statistic

BINS_OF_NAMES = 3
"""A feature whose values are names has few common ones."""
MOST_REQUESTS = 10_000_000
"""Of the canary; who needs more needs another threshold."""


def requests_to_pass(settings: DriftGate, *, stable_per_canary: float) -> int | None:
    """Canary requests after which half of all canaries without any drift have passed; None when never.

    `stable_per_canary` is how many requests the stable arm has for each of the canary's; 19 at a weight of 5 %.
    """
    # All features must pass: half the time each is luckier than this.
    luck = 0.5 ** (1 / len(_asked(settings)))

    def passes(part: Allowed, feature: Feature, number: int, size: float) -> bool:
        seen = _seen(settings, part, feature, size, true=0, luck=luck)
        return seen.upper(PASS_LEVEL / spending(number)) <= part.threshold(feature)

    return _slowest(settings, stable_per_canary, passes)


def requests_to_fail(settings: DriftGate, *, times: float, stable_per_canary: float, alpha: float) -> int | None:
    """Canary requests after which a divergence of `times` what is allowed fails, half the time; None when never.

    `alpha` is the gate's share of the error budget, as in `judge_drift`. The answer is for the feature
    that needs most.
    """
    # What users ask is compared once more, with the reference window.
    comparisons = len(_asked(settings)) + (len(settings.inputs.features) if settings.inputs else 0)

    def fails(part: Allowed, feature: Feature, number: int, size: float) -> bool:
        threshold = part.threshold(feature)
        seen = _seen(settings, part, feature, size, true=times * threshold, luck=0.5)
        return seen.chance_above(threshold) * spending(number) <= alpha / comparisons

    return _slowest(settings, stable_per_canary, fails)


def _slowest(
    settings: DriftGate, stable_per_canary: float, decided: Callable[[Allowed, Feature, int, float], bool]
) -> int | None:
    """Requests until the feature that needs most is decided."""
    most = 0
    for part, feature in _asked(settings):
        for number, requests, size in _looks(settings, stable_per_canary):
            if decided(part, feature, number, size):
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


def _seen(settings: DriftGate, part: Allowed, feature: Feature, size: float, *, true: float, luck: float) -> Divergence:
    """What a true divergence looks like; a share `luck` of samples of this size shows less."""
    bins = settings.bins if feature in NUMERIC else BINS_OF_NAMES
    if part.statistic is Statistic.KS:
        chance = float(scipy.stats.kstwobign.ppf(luck)) / math.sqrt(size) if true == 0 else 0.0
        return Divergence(part.statistic, true + chance, bins, size, 0.5 / math.sqrt(size))
    scale = CHANCE_SCALE[part.statistic]
    value = float(scipy.stats.ncx2.ppf(luck, bins - 1, true * scale * size)) / scale / size
    return Divergence(part.statistic, value, bins, size, 2 * math.sqrt(max(true, value) / scale / size))
