"""Evidence that one arm fails less than a margin more often than the other, whatever the other's share of failures is.

Each failure of the canary multiplies the evidence by w < 1, each failure of stable by v > 1, and each request of
the canary by exp(margin (1 - w)). For n requests of the canary and m of stable let v = 1 + (1 - w) n / m. As
1 + p (w - 1) <= exp(p (w - 1)), the mean of that is at most

    exp(n (1 - w) (margin + stable's share - the canary's share)),

which is at most 1 as soon as the canary's share is higher by the margin or more. Stable's share cancels: it may
wander from scrape to scrape, as long as it does so for both arms.
"""

from __future__ import annotations

import numpy as np

from gates.evalues.exchange import Array


def log_e_difference(weights: Array, margin: float, canary: Array, stable: Array) -> Array:
    """Ln e of one scrape for each of several weights w, fixed before its failures were seen.

    Shapes: `weights` (..., J), `canary` and `stable` (..., 2) as [fine, bad]; answer (..., J), 0 without stable.
    """
    drawn, other = canary.sum(axis=-1)[..., None], stable.sum(axis=-1)[..., None]
    lighter = 1 - weights
    heavier = np.log1p(lighter * drawn / np.maximum(other, 1))
    gained = canary[..., 1:] * np.log(weights) + stable[..., 1:] * heavier + drawn * margin * lighter
    return np.asarray(np.where(other > 0, gained, 0.0))


def best_weight(share: Array, margin: float, canary: Array, stable: Array) -> Array:
    """The w that wins most when both arms fail with that share; the counts only say how many requests there are."""
    ratio = canary.sum(axis=-1) / np.maximum(stable.sum(axis=-1), 1)
    total = (share + margin) * (1 + ratio)
    root = np.sqrt(np.maximum(total**2 - 4 * margin * ratio * share * (1 + ratio), 0))
    return np.asarray(2 * share * (1 + ratio) / (total + root))
