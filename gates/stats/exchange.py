"""How surprising it is that the canary drew just these requests from the pool of both arms: permutation e-values.

In one scrape both arms served `pool[k]` requests in bin k, of which `canary[k]` were the canary's. When
both arms have the same distribution during that scrape, every way of choosing the canary's n requests from
the pool is equally likely. For weights h fixed before the scrape,

    e = prod_k h_k^canary_k / Z,    Z = mean over all choices of prod_k h_k^choice_k

then has mean exactly 1, whatever the common distribution, its drift, or the share of traffic (permutation
e-values: Koning, arXiv:2310.01153). With two bins this is Fisher's non-central hypergeometric likelihood
ratio, and it generalises to any odds ratio r as the null. Against `odds <= r` with alternatives above r, and
against `odds >= r` with alternatives below r, its mean stays at most 1 over the whole one-sided null, because
ln Z is convex.

Odds of two bins may be a millionfold: against a stable arm that never fails, any margin is. There the methods
for many bins lose all digits, and two kinds can be summed directly, because every term is positive.
"""

from __future__ import annotations

import numpy as np
import scipy

from gates.stats.e_process import Array

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


EXACT_DRAWS = 16
"""Up to here Newton's identities are used; beyond it a saddlepoint. With weights from 1/6 to 6, the widest that
are ever bet, neither errs by more than 2e-3 in the logarithm, and by 2e-5 with the weights of real times."""
NEWTON_STEPS = 25


def log_e(log_h: Array, canary: Array, pool: Array) -> Array:
    """Ln e of one scrape for each of several weights.

    Shapes: `log_h` is (..., J, K), `canary` and `pool` are (..., K); the answer is (..., J).
    """
    drawn = canary.sum(axis=-1)
    seen = np.einsum("...jk,...k->...j", log_h, canary)
    return np.asarray(seen - log_mean(log_h, pool, drawn))


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


def log_mean(log_h: Array, pool: Array, drawn: Array) -> Array:
    """Ln of the mean of prod h over all ways to draw `drawn` of the pooled requests.

    Shapes: `log_h` (..., J, K), `pool` (..., K), `drawn` (...); the answer is (..., J).
    """
    total = pool.sum(axis=-1)
    # Choosing who is left out is the same choice, with inverse weights; so never more than half is drawn.
    flip = 2 * drawn > total
    few = np.where(flip, total - drawn, drawn)
    signed = np.where(flip[..., None, None], -log_h, log_h)
    lead = np.broadcast_shapes(signed.shape[:-2], few.shape, pool.shape[:-1])
    weights = np.broadcast_to(signed, (*lead, *signed.shape[-2:]))
    pools, draws = np.broadcast_to(pool, (*lead, pool.shape[-1])), np.broadcast_to(few, lead)
    answer = np.zeros((*lead, signed.shape[-2]))
    rules = (
        ((draws > 0, _of_two),)
        if pool.shape[-1] == 2
        else (
            (draws > EXACT_DRAWS, _saddlepoint),
            ((draws > 0) & (draws <= EXACT_DRAWS), _exact),
        )
    )
    for chosen, rule in rules:
        if chosen.any():
            answer[chosen] = rule(weights[chosen], pools[chosen], draws[chosen])
    everything = np.einsum("...jk,...k->...j", log_h, pool)
    return np.asarray(np.where(flip[..., None], everything + answer, answer))


def _of_two(log_h: Array, pool: Array, drawn: Array) -> Array:
    """Two kinds, such as fine and failed: summed, unless so many terms matter that they are a smooth curve."""
    rare, total = pool.min(axis=-1), pool.sum(axis=-1)
    failed_rare = (pool[:, 1] <= pool[:, 0])[:, None]
    common = np.where(failed_rare, log_h[..., 0], log_h[..., 1])
    log_odds = log_h.sum(axis=-1) - 2 * common
    answer = common * drawn[:, None]
    few = np.minimum(rare, drawn) <= SUMMED
    if few.any():
        answer[few] += log_mean_of_few(log_odds[few], rare[few], drawn[few], total[few])
    if not few.all():
        answer[~few] += _of_many(log_odds[~few], rare[~few], drawn[~few], total[~few])
    return answer


def _of_many(log_odds: Array, rare: Array, drawn: Array, total: Array) -> Array:
    """Every weight is a case of its own here, because its odds decide how it is summed."""
    shape = log_odds.shape
    rare, drawn, total = (np.broadcast_to(each[:, None], shape).ravel() for each in (rare, drawn, total))
    odds, answer = log_odds.ravel(), np.empty(log_odds.size)
    narrow = variance(odds, rare, drawn, total) <= NARROW
    if narrow.any():
        answer[narrow] = log_mean_around(odds[narrow], rare[narrow], drawn[narrow], total[narrow])
    if not narrow.all():
        wide = ~narrow
        weights = np.stack([np.zeros_like(odds[wide]), odds[wide]], axis=-1)[:, None]
        pool = np.stack([total - rare, rare], axis=-1)[wide]
        answer[wide] = _saddlepoint(weights, pool, drawn[wide])[:, 0]
    return np.asarray(answer.reshape(shape))


def _exact(log_h: Array, pool: Array, drawn: Array) -> Array:
    """Newton's identities for elementary symmetric means, around the weights' mean so that little cancels."""
    total = pool.sum(axis=-1)[:, None]
    h = np.exp(log_h)
    mean = np.einsum("djk,dk->dj", h, pool) / total
    excess = h / mean[..., None] - 1
    degree = max(int(drawn.max()), 1)
    sums = [np.zeros_like(mean)]
    power = excess * pool[:, None, :]
    for _ in range(degree):
        sums.append(power.sum(axis=-1))
        power = power * excess
    sums[1] = np.zeros_like(mean)
    symmetric = [np.ones_like(mean)]
    for order in range(1, degree + 1):
        terms = [(-1) ** (i - 1) * symmetric[order - i] * sums[i] for i in range(1, order + 1)]
        symmetric.append(np.asarray(sum(terms) / order))
    ratio, answer = np.ones_like(total), np.ones_like(mean)
    for order in range(1, degree + 1):
        # The share of choices that hold `order` given requests; 0 once that is more than are drawn.
        ratio = ratio * np.maximum(drawn[:, None] - order + 1, 0) / np.maximum(total - order + 1, 1)
        answer = answer + ratio * symmetric[order]
    # A forecast feeds parts of requests, for which the identities may leave nothing; real counts never do.
    none = (answer <= 0).any(axis=-1)
    logs = drawn[:, None] * np.log(mean) + np.log(np.where(none[:, None], 1, answer))
    if none.any():
        logs[none] = _saddlepoint(log_h[none], pool[none], drawn[none])
    return np.asarray(logs)


def _saddlepoint(log_h: Array, pool: Array, drawn: Array) -> Array:
    """Second-order saddlepoint of the generating function prod (1 + h z)^pool, relative to that of h = 1.

    Taken relative, the errors of both cancel where the weights are close to 1 (Daniels 1954; Skovgaard 1987).
    """
    total = pool.sum(axis=-1)[:, None]
    draws = drawn[:, None].astype(np.float64)
    start = np.log(draws) - np.log(total - draws)
    tilt = start - np.einsum("djk,dk->dj", log_h, pool) / total
    for _ in range(NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-(log_h + tilt[..., None])))
        expected = np.einsum("djk,dk->dj", chance, pool)
        spread = np.einsum("djk,dk->dj", chance * (1 - chance), pool)
        step = np.clip((draws - expected) / spread, -1, 1)
        tilt = tilt + step
        if np.abs(step).max() < 1e-9:
            break
    return np.asarray(_log_coefficient(log_h, pool, draws, tilt) - _log_choices(total, draws))


def _log_coefficient(log_h: Array, pool: Array, drawn: Array, tilt: Array) -> Array:
    chance = 1 / (1 + np.exp(-(log_h + tilt[..., None])))
    variance = chance * (1 - chance)
    second = np.einsum("djk,dk->dj", variance, pool)
    third = np.einsum("djk,dk->dj", variance * (1 - 2 * chance), pool)
    fourth = np.einsum("djk,dk->dj", variance * (1 - 6 * variance), pool)
    log_sum = np.einsum("djk,dk->dj", np.logaddexp(0, log_h + tilt[..., None]), pool)
    correction = fourth / (8 * second**2) - 5 * third**2 / (24 * second**3)
    return np.asarray(log_sum - drawn * tilt - 0.5 * np.log(2 * np.pi * second) + np.log1p(correction))


def _log_choices(total: Array, drawn: Array) -> Array:
    """The same approximation for h = 1, where the tilt is known."""
    share = drawn / total
    second = total * share * (1 - share)
    third, fourth = second * (1 - 2 * share), second * (1 - 6 * share * (1 - share))
    correction = fourth / (8 * second**2) - 5 * third**2 / (24 * second**3)
    entropy = -drawn * np.log(share) - (total - drawn) * np.log1p(-share)
    return np.asarray(entropy - 0.5 * np.log(2 * np.pi * second) + np.log1p(correction))
