"""The exchange e-value: its mean over relabellings is 1, and it is the likelihood ratio that the books have."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from gates.stats.exchange import log_e, log_e_odds, log_mean

LOG_WEIGHT = st.floats(-np.log(6), np.log(6))
LOG_ODDS = st.floats(-12, 12)


def choices(pool: list[int], drawn: int) -> list[tuple[int, ...]]:
    """Every way the canary's requests can lie in the bins."""
    return [each for each in product(*(range(count + 1) for count in pool)) if sum(each) == drawn]


def mean_over_choices(log_h: list[float], pool: list[int], drawn: int) -> float:
    found = np.asarray(choices(pool, drawn), dtype=np.float64)
    chance = stats.multivariate_hypergeom(m=pool, n=drawn).pmf(found.astype(int)) if drawn else np.ones(1)
    return float(chance @ np.exp(log_e(np.asarray([log_h]), found, np.asarray(pool, dtype=np.float64))[:, 0]))


@given(pool=st.lists(st.integers(0, 6), min_size=2, max_size=4), data=st.data())
def test_the_mean_is_one_for_every_small_pool(pool: list[int], data: st.DataObject) -> None:
    drawn = data.draw(st.integers(0, sum(pool)))
    log_h = data.draw(st.lists(LOG_WEIGHT, min_size=len(pool), max_size=len(pool)))
    assert mean_over_choices(log_h, pool, drawn) == pytest.approx(1, abs=1e-9)


@given(fine=st.integers(0, 400), failed=st.integers(0, 200), share=st.floats(0, 1), odds=LOG_ODDS)
def test_two_kinds_have_mean_one_at_any_odds(fine: int, failed: int, share: float, odds: float) -> None:
    drawn = round(share * (fine + failed))
    bad = np.arange(max(0, drawn - fine), min(drawn, failed) + 1)
    canary = np.stack([drawn - bad, bad], axis=-1).astype(np.float64)
    log_ratio = log_e(np.array([[0.0, odds]]), canary, np.array([fine, failed], dtype=np.float64))[:, 0]
    chance = stats.hypergeom(fine + failed, failed, drawn).pmf(bad) if drawn else np.ones(1)
    assert float(chance @ np.exp(log_ratio)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("drawn", [20, 50, 80])
def test_three_bins_have_mean_one_through_the_saddlepoint(drawn: int) -> None:
    assert mean_over_choices([-0.3, 0.2, 1.2], [60, 25, 15], drawn) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("canary", "stable"), [(40, 400), (300, 300), (12, 3000)])
def test_a_fine_grid_has_mean_one_by_sampling(canary: int, stable: int) -> None:
    rng = np.random.default_rng(5)
    pool = rng.multinomial(canary + stable, rng.dirichlet(np.full(200, 0.5)))
    log_h = np.linspace(-0.1, 0.25, 200)
    drawn = rng.multivariate_hypergeometric(pool, canary, size=4000)
    e = np.exp(log_e(log_h[None], drawn.astype(np.float64), pool.astype(np.float64))[:, 0])
    assert abs(e.mean() - 1) < 4 * e.std() / np.sqrt(len(e))


@pytest.mark.parametrize("weights", [[-1.79, 1.79, -1.79], [1.79, -1.79, -1.79], [-1.79, -1.79, 1.79]])
@pytest.mark.parametrize("pool", [[32, 1, 1], [32, 21, 7], [1, 16, 17], [20, 20, 20]])
@pytest.mark.parametrize("drawn", [15, 16, 17])
def test_the_widest_weights_cost_less_than_two_thousandths(weights: list[float], pool: list[int], drawn: int) -> None:
    assert mean_over_choices(weights, pool, drawn) == pytest.approx(1, abs=2e-3)


@given(fine=st.integers(1, 300), failed=st.integers(1, 300), data=st.data(), odds=st.floats(0.05, 20))
def test_the_mean_of_the_weights_is_scipys_partition(fine: int, failed: int, data: st.DataObject, odds: float) -> None:
    drawn = data.draw(st.integers(1, fine + failed - 1))
    fisher, equal = (stats.nchypergeom_fisher(fine + failed, failed, drawn, each) for each in (odds, 1))
    at = round(fisher.mean())
    partition = equal.logpmf(at) + at * np.log(odds) - fisher.logpmf(at)
    weights, pool = np.array([[0, np.log(odds)]]), np.array([fine, failed], dtype=np.float64)
    assert log_mean(weights, pool, np.float64(drawn))[0] == pytest.approx(partition, abs=2e-5)


@given(odds=st.floats(-4, 4), null=st.floats(-3, 3), better=st.floats(0, 2), pool=st.tuples(*[st.integers(1, 60)] * 2))
def test_one_sided_nulls_keep_the_mean_below_one(
    odds: float, null: float, better: float, pool: tuple[int, int]
) -> None:
    """Odds that the null allows, at its edge or well within it, against alternatives on the other side."""
    assume(abs(odds - null) > 1e-6)
    fine, failed = pool
    drawn = (fine + failed) // 3
    assume(drawn)
    bad = np.arange(max(0, drawn - fine), min(drawn, failed) + 1)
    canary = np.stack([drawn - bad, bad], axis=-1).astype(np.float64)
    log_ratio = log_e_odds(np.array([odds]), np.float64(null), canary, np.asarray(pool) - canary)[:, 0]
    for true in (null, null - better if odds > null else null + better):
        chance = stats.nchypergeom_fisher(fine + failed, failed, drawn, np.exp(true)).pmf(bad)
        mean = float(chance @ np.exp(log_ratio))
        assert mean <= 1 + 1e-6
        if true == null:
            assert mean == pytest.approx(1, abs=1e-6)


def test_more_of_the_worse_is_never_less_evidence() -> None:
    stable, log_h = np.array([50.0, 30, 20]), np.log([[0.7, 1.0, 2.0]])
    canaries = np.array([[10.0, 5, 5], [9, 6, 5], [9, 5, 6], [5, 5, 10], [0, 0, 20]])
    evidence = log_e(log_h, canaries, canaries + stable)[:, 0]
    assert (np.diff(evidence[[0, 1, 3, 4]]) > 0).all() and evidence[2] > evidence[1]


@given(odds=st.floats(-3, 3), drawn=st.tuples(st.integers(0, 6), st.integers(0, 9)))
def test_cutting_a_scrape_at_random_is_a_fair_game(odds: float, drawn: tuple[int, int]) -> None:
    """Requests that might have come in either half: the whole's evidence over both parts' has mean 1."""
    pool, log_h = np.array([7, 5, 3]), np.array([[0.0, odds / 2, odds]])
    parts = np.asarray(choices(pool.tolist(), 6))
    chance = stats.multivariate_hypergeom(m=pool, n=6).pmf(parts)
    cut = [log_mean(log_h, part.astype(np.float64), np.float64(drawn[0])) for part in parts]
    cut = np.add(cut, [log_mean(log_h, (pool - part).astype(np.float64), np.float64(drawn[1])) for part in parts])
    ratio = np.exp(cut[:, 0] - log_mean(log_h, pool.astype(np.float64), np.float64(sum(drawn)))[0])
    assert float(chance @ ratio) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("canary", "stable"),
    [([1e7, 3e5], [2e8, 6e6]), ([0, 1], [0, 0]), ([0, 1], [1e7, 0]), ([0, 5e6], [0, 5e6]), ([17, 0], [17, 1])],
    ids=["huge", "canary alone", "one failure", "all fail", "one more than the few"],
)
@pytest.mark.parametrize("odds", [0.5, 2.3, 20.0, -40.0])
def test_nasty_counts_give_numbers(canary: list[float], stable: list[float], odds: float) -> None:
    found = log_e_odds(np.array([odds]), np.float64(0), np.asarray(canary), np.asarray(stable))
    assert np.isfinite(found).all()


@given(
    pool=st.lists(st.floats(0.01, 4), min_size=3, max_size=6),
    share=st.floats(0.05, 1),
    data=st.data(),
)
def test_parts_of_requests_lie_between_the_weights(pool: list[float], share: float, data: st.DataObject) -> None:
    """As a forecast feeds them, where users are few."""
    log_h = np.asarray(data.draw(st.lists(LOG_WEIGHT, min_size=len(pool), max_size=len(pool))))
    drawn = share * sum(pool)
    found = log_mean(log_h[None], np.asarray(pool), np.asarray(drawn))
    assert drawn * log_h.min() - 0.5 <= found[0] <= drawn * log_h.max() + 0.5


def test_one_arm_alone_is_no_evidence() -> None:
    log_h = np.log([[0.5, 1, 3]])
    for counts in ([0.0, 0, 7], [4.0, 0, 30], [0.0, 0, 0]):
        assert log_e(log_h, np.array(counts), np.array(counts)) == pytest.approx(0, abs=1e-9)
        assert log_e(log_h, np.zeros(3), np.array(counts)) == pytest.approx(0, abs=1e-9)
