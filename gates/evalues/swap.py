"""Mirrored pairs: one prompt, both arms. When neither is worse, swapping the two answers changes nothing.

For any increasing score g, `2 g(canary) / (g(canary) + g(stable))` then has mean 1; difficulty and load,
which differ from prompt to prompt, cancel within the pair.
"""

from __future__ import annotations

import numpy as np

from gates.evalues.exchange import Array

STEEPNESS = (0.5, 1.0, 2.0, 4.0, 8.0)
STEEPNESS_WEIGHTS = (0.15, 0.2, 0.25, 0.25, 0.15)
LIMIT = 2.0
"""Of the log ratio: one absurd pair is no more telling than a sevenfold one."""


def log_swap(log_ratio: Array) -> Array:
    """Ln e of pairs for each steepness; `log_ratio` (..., n) is ln(canary / stable), answer (..., J).

    A logistic in the ratio: 1 + tanh(s r / 2) is 2 g(c) / (g(c) + g(b)) for g(x) = x^s. NaN counts as no pair.
    """
    ratio = np.clip(np.nan_to_num(log_ratio, nan=0.0), -LIMIT, LIMIT)
    return np.asarray(np.log1p(np.tanh(np.asarray(STEEPNESS)[:, None] * ratio[..., None, :] / 2)).sum(axis=-1))
