"""Two kinds of requests, such as failed and fine: evidence that the canary's odds are above a bound, or below.

With two bins the exchange e-value generalises to any odds ratio r as the null: the ratio of two
non-central hypergeometric likelihoods. Against `odds <= r` with alternatives above r, and against
`odds >= r` with alternatives below r, its mean stays at most 1 over the whole one-sided null.
"""

from __future__ import annotations

import numpy as np

from gates.evalues.exchange import Array, log_mean

WORSE_ODDS = (1.5, 2.0, 3.0, 5.0, 10.0)
WORSE_WEIGHTS = (0.25, 0.3, 0.2, 0.15, 0.1)
"""Most weight where data are scarce: a tenfold rate shows itself soon."""


def log_e_odds(log_odds: Array, null: Array, canary: Array, stable: Array) -> Array:
    """Ln e of one scrape for alternatives `log_odds` against the null's log odds ratio.

    Shapes: `log_odds` (..., J), `null` (...), `canary` and `stable` (..., 2) as [fine, bad]; answer (..., J).
    """
    canary, pool = np.asarray(canary, dtype=np.float64), np.asarray(canary + stable, dtype=np.float64)
    both = np.concatenate([log_odds, np.broadcast_to(null, log_odds.shape[:-1])[..., None]], axis=-1)
    weights = np.stack([np.zeros_like(both), both], axis=-1)
    log_partition = log_mean(weights, pool, canary.sum(axis=-1))
    bad = canary[..., 1, None]
    gain = bad * (both[..., :-1] - both[..., -1:])
    return np.asarray(gain - log_partition[..., :-1] + log_partition[..., -1:])


def log_odds_of(share: Array) -> Array:
    """Ln of the odds of a share, kept away from 0 and 1."""
    kept = np.clip(share, 1e-9, 1 - 1e-9)
    return np.asarray(np.log(kept) - np.log1p(-kept))
