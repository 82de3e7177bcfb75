"""Both processes over whole sequences of scrapes: every way the same requests could have been dealt to the arms."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from gates.stats.binary import FailureProcess
from gates.stats.times import LatencyProcess, count_samples, sample_edges

Array = NDArray[np.float64]
EDGES = (0.1, 0.2, 0.4)
POOLS = ([4, 3, 2, 1], [1, 2, 3, 3])
DRAWN = 4


def dealt(pool: list[int]) -> tuple[Array, Array]:
    """Every canary's counts that can be drawn from the pool, with their chances."""
    counts = np.asarray([each for each in product(*(range(n + 1) for n in pool)) if sum(each) == DRAWN])
    return counts.astype(np.float64), stats.multivariate_hypergeom(m=pool, n=DRAWN).pmf(counts)


def mean_slower(*, tolerance: float, temper: bool) -> float:
    (first, first_chance), (second, second_chance) = (dealt(pool) for pool in POOLS)
    # Every sequence runs next to the others, as simulations do.
    ways = np.asarray(list(product(range(len(first)), range(len(second)))))
    process = LatencyProcess(
        EDGES, quantile=0.75, max_increase=0.5, tolerance=tolerance, temper=temper, leading=(len(ways),)
    )
    before = np.broadcast_to([[30.0, 20, 10, 5], [20.0, 25, 12, 9]], (len(ways), 2, 4))
    process.learn(before, 60)
    for canary, pool in ((first[ways[:, 0]], POOLS[0]), (second[ways[:, 1]], POOLS[1])):
        left = np.asarray(pool) - canary
        process.feed(canary, np.stack([left, np.zeros_like(left)], axis=1), 30)
    return float((first_chance[ways[:, 0]] * second_chance[ways[:, 1]]) @ np.exp(process.log_worse))


def test_slower_wins_nothing_when_requests_are_dealt_at_random() -> None:
    assert mean_slower(tolerance=0.0, temper=False) == pytest.approx(1, abs=1e-9)
    assert mean_slower(tolerance=0.0, temper=True) <= 1
    assert mean_slower(tolerance=0.3, temper=False) < 0.95


@pytest.mark.parametrize("margin", [1.0, 0.3])
def test_a_canary_as_often_beyond_the_margin_as_stable_beyond_its_quantile_wins_nothing(margin: float) -> None:
    """With edges at the quantile and at the margin; the past that bets are made of has another distribution."""
    edges = (0.1, 0.2, 0.2 * (1 + margin), 1.0)
    chance, counts = stats.binom(4, 0.4).pmf(np.arange(5)), np.asarray(list(product(range(5), repeat=4)))
    process = LatencyProcess(
        edges, quantile=0.6, max_increase=margin, tolerance=0.05, temper=False, leading=(len(counts),)
    )
    process.learn(np.broadcast_to([[30.0, 30, 25, 10, 5]], (len(counts), 1, 5)), 60)
    for canary, stable in ((counts[:, 0], counts[:, 1]), (counts[:, 2], counts[:, 3])):
        none = np.zeros_like(canary)
        # Both arms exceed, with the same chance, what must not be exceeded more often: each an edge of its own.
        process.feed(
            np.stack([4 - canary, none, none, none, canary], axis=-1).astype(np.float64),
            np.stack([4 - stable, none, stable, none, none], axis=-1)[:, None].astype(np.float64),
            0.0,
        )
    mean = float(chance[counts].prod(axis=1) @ np.exp(process.log_fine))
    assert mean <= 1 + 1e-9
    assert process.log_fine.max() > np.log(3)


def mean_failing(*, temper: bool) -> float:
    pools = ([7, 3], [9, 1], [5, 5])
    ways = [dealt(pool) for pool in pools]
    total = 0.0
    for choice in product(*(range(len(counts)) for counts, _ in ways)):
        process, chance = FailureProcess(max_increase=0.1, temper=temper), 1.0
        process.learn(np.array([[20.0, 1], [17.0, 4]]), 10)
        for (counts, chances), pool, each in zip(ways, pools, choice, strict=True):
            process.feed(counts[each], np.stack([np.asarray(pool) - counts[each], np.zeros(2)]), 10)
            chance *= chances[each]
        total += chance * float(np.exp(process.log_worse))
    return total


def test_failing_wins_nothing_when_failures_are_dealt_at_random() -> None:
    assert mean_failing(temper=False) == pytest.approx(1, abs=1e-9)
    assert mean_failing(temper=True) <= 1


def mean_fine(past: tuple[float, float], stable: float, margin: float) -> float:
    """Of one scrape in which the canary fails by exactly the margin more often."""
    process = FailureProcess(max_increase=margin, temper=False, leading=(42,))
    process.learn(np.broadcast_to(past, (42, 1, 2)).astype(np.float64), 10)
    bad = np.asarray(list(product(range(6), range(7))), dtype=np.float64)
    process.feed(
        np.stack([5 - bad[:, 0], bad[:, 0]], axis=-1), np.stack([6 - bad[:, 1], bad[:, 1]], axis=-1)[:, None, :], 10
    )
    chance = stats.binom(5, stable + margin).pmf(bad[:, 0]) * stats.binom(6, stable).pmf(bad[:, 1])
    return float(chance @ np.exp(process.log_fine))


@given(stable=st.floats(0.001, 0.9), margin=st.floats(0.001, 0.6), seen=st.floats(0.3, 1e5))
def test_a_canary_at_the_margin_wins_nothing(stable: float, margin: float, seen: float) -> None:
    margin = min(margin, 1 - stable)
    assert mean_fine(((1 - stable) * seen, stable * seen), stable, margin) <= 1 + 1e-9


@given(before=st.floats(0.0001, 0.9), stable=st.floats(0.001, 0.9), margin=st.floats(0.001, 0.6))
def test_nor_does_it_when_both_arms_fail_more_or_less_often_than_before(
    before: float, stable: float, margin: float
) -> None:
    margin = min(margin, 1 - stable)
    assert mean_fine(((1 - before) * 1e4, before * 1e4), stable, margin) <= 1 + 1e-9


def test_a_past_too_thin_to_know_the_rate_is_no_licence() -> None:
    assert mean_fine((1, 0), 0.5, 0.3) <= 1 + 1e-9
    assert mean_fine((0.5, 0), 0.5, 0.005) <= 1 + 1e-9


@pytest.mark.parametrize("margin", [0.0, 1e-6, 0.005, 0.5, 1.0])
@pytest.mark.parametrize("tolerance", [0.0, 0.3, 1.0])
def test_margins_of_nothing_and_of_everything_give_numbers(margin: float, tolerance: float) -> None:
    process = FailureProcess(max_increase=margin, tolerance=tolerance)
    for canary, stable in product(([0.0, 0], [1.0, 0], [0.0, 1], [0.0, 1e7], [1e7, 0], [1e7, 3e4]), repeat=2):
        process.feed(np.asarray(canary), np.asarray([stable]), 3600)
        assert np.isfinite([process.log_worse, process.log_fine, process.design_effect[0]]).all()
    if not margin:
        assert process.log_fine == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("quantile", "margin"), [(0.001, 0.0), (0.5, 0.2), (0.5, 1.0), (0.95, 50.0), (0.999, 0.2), (0.999, 50.0)]
)
@pytest.mark.parametrize("edges", [(0.1, 0.2), (0.001, 1.0, 2560.0), tuple(sample_edges())], ids=["two", "wide", "all"])
def test_strange_settings_and_counts_give_numbers(quantile: float, margin: float, edges: tuple[float, ...]) -> None:
    process = LatencyProcess(edges, quantile=quantile, max_increase=margin, tolerance=0.05)
    bins = len(edges) + 1
    one, first, last, spread = (
        np.eye(bins)[bins // 2],
        np.eye(bins)[0] * 1e7,
        np.eye(bins)[-1] * 1e5,
        np.full(bins, 40.0),
    )
    for canary, stable in product((np.zeros(bins), one, first, last, spread), repeat=2):
        for seconds in (1, 3600):
            process.feed(canary, np.stack([stable, one]), seconds)
        assert np.isfinite([process.log_worse, process.log_fine]).all()
        assert np.isfinite(process.design_effect).all() and process.design_effect.min() >= 1


def lognormal(rng: np.random.Generator, count: int, slower: float = 1.0) -> Array:
    return count_samples(rng.lognormal(np.log(0.2 * slower), 0.5, count).tolist(), sample_edges())


@pytest.mark.parametrize(
    ("quantile", "margin", "factor", "most"), [(0.5, 1.0, 1.0, 36), (0.5, 1.0, 0.5, 24), (0.95, 1.0, 1.0, 144)]
)
def test_a_generous_margin_needs_few_requests(quantile: float, margin: float, factor: float, most: int) -> None:
    """In the median of 40 canaries with as many requests as stable."""
    rng, lanes, each = np.random.default_rng(3), 40, 6
    process = LatencyProcess(
        sample_edges(), quantile=quantile, max_increase=margin, tolerance=0.1, temper=False, leading=(lanes,)
    )
    process.learn(np.stack([[lognormal(rng, 30)] for _ in range(lanes)]), 60)
    needed = np.full(lanes, np.inf)
    for scrape in range(1, most // each + 1):
        canary = np.stack([lognormal(rng, each, factor) for _ in range(lanes)])
        process.feed(canary, np.stack([[lognormal(rng, each)] for _ in range(lanes)]), 6)
        needed[np.isinf(needed) & (process.log_fine >= np.log(20))] = scrape * each
    assert np.median(needed) <= most


@pytest.mark.parametrize(("factor", "worse", "fine"), [(0.8, False, True), (1.0, False, True), (1.5, True, False)])
def test_it_sees_what_everybody_sees(factor: float, worse: bool, fine: bool) -> None:
    rng = np.random.default_rng(7)
    process = LatencyProcess(sample_edges(), quantile=0.95, max_increase=0.25, tolerance=0.05)
    for _ in range(30):
        process.feed(lognormal(rng, 200, factor), np.stack([lognormal(rng, 400) for _ in range(3)]), 10)
    assert (process.log_worse > np.log(100), process.log_fine > np.log(20)) == (worse, fine)


def test_alike_pods_and_unlike_ones() -> None:
    """One canary pod that is 15 % slower is worse among pods that are alike, and nothing special among others."""
    found = {}
    for name, pods in (("alike", [1.0] * 6), ("unlike", [0.85, 0.9, 0.95, 1.05, 1.1, 1.15])):
        rng = np.random.default_rng(11)
        process = LatencyProcess(sample_edges(), quantile=0.95, max_increase=0.3, tolerance=0.0)
        for _ in range(40):
            process.feed(lognormal(rng, 100, 1.15), np.stack([lognormal(rng, 100, each) for each in pods]), 10)
        found[name] = float(process.log_worse)
    assert found["alike"] > np.log(1000) > np.log(20) > found["unlike"]


@pytest.mark.parametrize("was", [4.0, 0.25], ids=["busier", "quieter"])
@pytest.mark.parametrize(("quantile", "a_second"), [(0.5, 2), (0.95, 20)])
def test_a_change_of_load_does_not_hold_up_a_canary_that_is_as_fast(quantile: float, a_second: int, was: float) -> None:
    """Where stable's quantile was before it, next to nothing of either arm may be beyond it now."""
    draws = np.random.default_rng(17)

    def scrape(typical: float) -> Array:
        return count_samples(list(typical * np.exp(0.5 * draws.normal(size=5 * a_second))), sample_edges())

    def scrapes_until_accepted() -> int:
        process = LatencyProcess(sample_edges(), quantile=quantile, max_increase=0.5, tolerance=0.05, temper=False)
        for _ in range(120):
            process.learn(scrape(0.4 * was)[None, :], 5)
        for taken in range(1, 121):
            process.feed(scrape(0.4), scrape(0.4)[None, :], 5)
            if process.log_fine >= np.log(20):
                return taken
        return 121

    assert scrapes_until_accepted() <= 40


def test_a_past_without_requests_is_forgotten_no_sooner_than_by_time() -> None:
    process = LatencyProcess(sample_edges(), quantile=0.5, max_increase=1.0, tolerance=0.2, temper=False)
    process.learn(count_samples([0.3] * 40, sample_edges())[None, :], 5)
    process.learn(np.zeros((1, len(sample_edges()) + 1)), 120)
    fast = count_samples([0.3, 0.35, 0.25] * 10, sample_edges())
    process.feed(fast, fast[None, :], 5)
    assert process.log_fine > 0
