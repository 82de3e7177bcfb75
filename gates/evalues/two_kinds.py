"""The mean of a tilt over all draws from a pool of two kinds: the partition of Fisher's non-central hypergeometric.

Odds may be a millionfold here: against a stable arm that never fails, any margin is. There the methods for
many bins lose all digits, and two kinds can be summed directly, because every term is positive.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

SUMMED = 64
"""Draws of the rarer kind up to which all terms are summed; beyond it, so many terms on either side of the largest."""
NARROW = 40.0
"""Variances up to which that suffices: ten standard deviations. Wider ones are smooth: a saddlepoint's case."""


def log_mean_of_few(log_odds: Array, rare: Array, drawn: Array, total: Array) -> Array:
    """Ln of the mean of odds^(rare ones drawn), when at most `SUMMED` are rare, or drawn.

    Shapes: `log_odds` (d, J), the counts (d,); neither `rare` nor `drawn` exceeds half of `total`.
    """
    # Who is rare and who is drawn may be exchanged.
    small, large, total = np.minimum(rare, drawn)[:, None], np.maximum(rare, drawn)[:, None], total[:, None]
    step = np.arange(int(small.max(initial=0)))
    inside = step < small
    none = np.log(np.where(inside, (total - large - step) / np.maximum(total - step, 1), 1)).sum(axis=1, keepdims=True)
    ratio = (small - step) * (large - step) / ((step + 1) * (total - small - large + step + 1))
    log_share = np.cumsum(np.log(np.where(inside, ratio, 1)), axis=1)
    terms = none + np.concatenate([np.zeros_like(none), np.where(inside, log_share, -np.inf)], axis=1)
    return _log_sum(terms[:, None, :] + np.arange(terms.shape[1]) * log_odds[..., None])


def log_mean_around(log_odds: Array, rare: Array, drawn: Array, total: Array) -> Array:
    """The same for any counts, when `variance` says that the distribution is narrow; all of one shape (d,)."""
    first = np.maximum(np.round(expected(log_odds, rare, drawn, total)) - SUMMED, 0)
    hits = first[:, None] + np.arange(2 * SUMMED + 1)
    rare, drawn, total = rare[:, None], drawn[:, None], total[:, None]
    kept = np.minimum(hits, np.minimum(rare, drawn))
    log_share = _log_choose(rare, kept) + _log_choose(total - rare, drawn - kept) - _log_choose(total, drawn)
    return _log_sum(np.where(hits == kept, log_share + kept * log_odds[:, None], -np.inf))


def expected(log_odds: Array, rare: Array, drawn: Array, total: Array) -> Array:
    """How many rare ones are drawn, about: where the odds of the four cells are those asked for."""
    odds = np.exp(log_odds)
    linear = total - rare - drawn + odds * (rare + drawn)
    root = np.sqrt(np.maximum(linear**2 - 4 * (odds - 1) * odds * rare * drawn, 0))
    return np.asarray(np.minimum(2 * odds * rare * drawn / np.maximum(linear + root, 1e-300), np.minimum(rare, drawn)))


def variance(log_odds: Array, rare: Array, drawn: Array, total: Array) -> Array:
    """Of the rare ones drawn, about: the harmonic sum of the four cells."""
    both = expected(log_odds, rare, drawn, total)
    cells = (both, rare - both, drawn - both, total - rare - drawn + both)
    return np.asarray(1 / np.sum([1 / np.maximum(cell, 1e-9) for cell in cells], axis=0))


def _log_choose(whole: Array, part: Array) -> Array:
    return np.asarray(
        scipy.special.gammaln(whole + 1) - scipy.special.gammaln(part + 1) - scipy.special.gammaln(whole - part + 1)
    )


def _log_sum(terms: Array) -> Array:
    largest = terms.max(axis=-1)
    return np.asarray(largest + np.log(np.exp(terms - largest[..., None]).sum(axis=-1)))
