"""Betting on the mean of bounded numbers (Waudby-Smith and Ramdas, arXiv:2010.09686).

A gambler who stakes a share of her wealth on every draw of x in [-1, 1], at odds that are fair when its
mean is 0, cannot expect to win when the mean is 0 or less. Her wealth is the evidence that it is not.
"""

from __future__ import annotations

import numpy as np

from gates.evalues.exchange import Array

STAKES = (0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
STAKE_WEIGHTS = (0.15, 0.2, 0.2, 0.15, 0.15, 0.15)
"""Small stakes find small differences slowly, large ones find large differences soon."""


def log_wealth(values: Array) -> Array:
    """Ln of what each stake made of `values` (..., n), each in [-1, 1]; answer (..., J). NaN counts as no draw."""
    draws = np.nan_to_num(values, nan=0.0)
    return np.asarray(np.log1p(np.asarray(STAKES)[:, None] * draws[..., None, :]).sum(axis=-1))
