"""Tells whether the canary is slower than the stable arm beside it."""

from __future__ import annotations

import math

from gates.chance import more_above
from gates.decide import Finding, decide, too_few, undecided
from gates.distribution import Distribution, Latencies
from gates.model import NoData, Verdict
from gates.spec import LatencyGate

GATE = "latency"
CLOCK_RESOLUTION_SECONDS = 1e-6
"""A stable arm faster than this is taken for this fast, so that a ratio exists."""


def judge_latency(settings: LatencyGate, evidence: Latencies, *, deadline_passed: bool) -> Verdict:
    """Compare one quantile of both arms; the canary may be slower by the margin."""
    stable, canary = evidence.stable, evidence.canary
    if isinstance(canary, NoData):
        return undecided(GATE, f"no latencies of the canary: {canary.reason}", {}, deadline_passed=deadline_passed)
    if isinstance(stable, NoData):
        return undecided(GATE, f"no latencies of stable: {stable.reason}", {}, deadline_passed=deadline_passed)
    lack = too_few("answered requests", stable.count, canary.count, settings.min_requests)
    if lack:
        sizes = {"canary_requests": float(canary.count), "stable_requests": float(stable.count)}
        return undecided(GATE, lack, sizes, deadline_passed=deadline_passed)
    return decide(GATE, _finding(settings, stable, canary), deadline_passed=deadline_passed)


def _finding(settings: LatencyGate, stable: Distribution, canary: Distribution) -> Finding:
    stable_seconds, canary_seconds = stable.quantile(settings.quantile), canary.quantile(settings.quantile)
    allowed_seconds = stable_seconds * (1 + settings.max_increase)
    increase = canary_seconds / max(stable_seconds, CLOCK_RESOLUTION_SECONDS) - 1
    # A canary that is slower by exactly the margin exceeds this as rarely as the stable exceeds its own quantile.
    above = canary.count_above(allowed_seconds)
    p_value = more_above(
        above,
        canary.count,
        # A hair less, so that 0.95 * 40 = 38.0000001 is still the 38th request.
        reference_rank=math.ceil(settings.quantile * stable.count - 1e-9),
        reference_total=stable.count,
    )
    quantile = f"p{settings.quantile * 100:g}"
    name = f"{settings.metric}_{quantile}"
    numbers = {
        f"{name}_canary_seconds": canary_seconds,
        f"{name}_stable_seconds": stable_seconds,
        f"{name}_increase_ratio": increase,
        "canary_above_margin_requests": float(above),
        "canary_requests": float(canary.count),
        "stable_requests": float(stable.count),
    }
    sentence = (
        f"canary {settings.metric.upper()} {quantile} is {_ms(canary_seconds)} against {_ms(stable_seconds)} on stable "
        f"({increase * 100:+.0f} %, allowed {settings.max_increase * 100:+g} %) "
        f"after {canary.count} and {stable.count} requests"
    )
    return Finding(sentence=sentence, numbers=numbers, beyond_margin=canary_seconds > allowed_seconds, p_value=p_value)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
