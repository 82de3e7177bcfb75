"""Every statistic against scipy or a published example, and its chance against seeded samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gates.stats.divergence import Strata, Vector, between, psi, smoothed

EVEN = np.full(10, 0.1)


def one_stratum(stable: tuple[int, ...], canary: tuple[int, ...]) -> Strata:
    return Strata.begin(len(stable)).plus(stable, canary).closed()


def test_psi_of_a_score_card_is_that_of_the_textbooks_formula() -> None:
    # The example of KAscore's psi(), after Siddiqi, Intelligent Credit Scoring (2017), with its exact shares:
    # -.15 ln .4 - .05 ln .8 + .05 ln 1.2 + .15 ln 1.6.
    found = psi(np.array([0.1, 0.2, 0.3, 0.4]), np.full(4, 0.25))
    assert found == pytest.approx(0.137444 + 0.011157 + 0.009116 + 0.070501, abs=1e-5)


def test_one_stratum_is_pearsons_test() -> None:
    table = [(50, 30, 20), (40, 50, 60)]
    pearson = stats.chi2_contingency(table, correction=False)
    # With its exact variance over relabellings, (N - 1) / N of Pearson's.
    assert one_stratum(*table).chance() == pytest.approx(stats.chi2.sf(pearson.statistic * 249 / 250, pearson.dof))


def test_strata_keep_what_differs_between_them_apart_as_in_the_admissions_to_berkeley() -> None:
    # UCBAdmissions: admitted and rejected men and women by department. In total women seem worse off.
    # R's mantelhaen.test(UCBAdmissions, correct = FALSE): 1.5246 on 1 degree, p = 0.2169.
    men = [(512, 313), (353, 207), (120, 205), (138, 279), (53, 138), (22, 351)]
    women = [(89, 19), (17, 8), (202, 391), (131, 244), (94, 299), (24, 317)]
    strata = Strata.begin(2)
    for stable, canary in zip(men, women, strict=True):
        strata = strata.plus(stable, canary).closed()
    assert strata.chance() == pytest.approx(0.2169, abs=1e-4)
    assert (
        one_stratum(tuple(map(sum, zip(*men, strict=True))), tuple(map(sum, zip(*women, strict=True)))).chance() < 1e-9
    )


def test_two_samples_of_the_same_kind_show_as_much_as_chance_says() -> None:
    rng = np.random.default_rng(11)
    found = [one_stratum(*rng.multinomial([900, 400], EVEN)).divergence for _ in range(2000)]
    ratios = np.array([each.value / each.by_chance for each in found])
    assert ratios.mean() == pytest.approx(1, abs=0.05)
    assert stats.kstest(ratios * 9, stats.chi2(9).cdf).statistic < 0.04


def test_pairs_are_mcnemars_test() -> None:
    # Agresti, Categorical Data Analysis (2002), table 10.1: approval of a prime minister, asked twice; z^2 = 17.36 for
    # 86 who turned away and 150 who turned to, without correction.
    pairs = [((1, 0), (1, 0))] * 794 + [((1, 0), (0, 1))] * 150 + [((0, 1), (1, 0))] * 86 + [((0, 1), (0, 1))] * 570
    strata = Strata.begin(2, closes_at=1)
    for stable, canary in pairs:
        strata = strata.plus(stable, canary)
    assert strata.chance() == pytest.approx(stats.chi2.sf(17.3559, 1), rel=1e-3)


def shifted_until(value: float) -> Vector:
    tilt = np.linspace(-1, 1, 10)
    low, high = 0.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        shares = np.exp(middle * tilt) / np.exp(middle * tilt).sum()
        low, high = (middle, high) if psi(shares, EVEN) < value else (low, middle)
    return shares


def test_a_true_divergence_is_neither_exceeded_nor_undercut_more_often_than_the_level_says() -> None:
    rng = np.random.default_rng(2)
    shares = shifted_until(0.2)
    above = below = 0
    for _ in range(600):
        seen, expected = smoothed(rng.multinomial(500, shares)), smoothed(rng.multinomial(2000, EVEN))
        found = between(seen, 500, expected, 2000)
        above += found.chance_above(0.2) < 0.05
        below += found.chance_below(0.2) < 0.05
    # 600 at 5 %: 30, and 46 would be three standard errors above.
    assert above <= 46
    assert below <= 46


def test_the_upper_bound_is_where_the_chance_below_is_the_level() -> None:
    found = one_stratum((100, 200, 300), (110, 190, 310)).divergence
    assert found.chance_below(found.upper(0.05)) == pytest.approx(0.05, rel=1e-3)
    assert found.upper(0.01) > found.upper(0.05) > found.value


def test_samples_that_are_equal_by_luck_are_no_more_sure_than_their_size() -> None:
    few = one_stratum((30, 30), (30, 30)).divergence.upper(0.05)
    many = one_stratum((3000, 3000), (3000, 3000)).divergence.upper(0.05)
    assert few == pytest.approx(100 * many, rel=1e-3)
    assert few > 0.1


def test_millions_of_requests_and_any_shares_have_a_bound_at_once() -> None:
    rng = np.random.default_rng(8)
    for requests in (30, 3_000_000):
        arms = [rng.multinomial(requests, rng.dirichlet(np.full(20, 0.05))) for _ in range(2)]
        found = one_stratum(tuple(map(int, arms[0])), tuple(map(int, arms[1]))).divergence
        assert found.value - found.by_chance <= found.upper(0.0005) < math.inf
        assert 0 <= found.chance_above(0.1) <= 1
