"""How both arms answer, as numbers that people watch: means and shares. Nothing is decided by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gates.drift.bins import Bins
from gates.drift.features import Feature
from gates.drift.strata import Strata
from gates.evidence import DriftCounts

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
