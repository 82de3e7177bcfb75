"""What others have computed: published tables, scipy's tests asked once, and sums done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gates.stats.binary import STEPS, FailureProcess, ShareProcess
from gates.stats.exchange import log_e_odds
from gates.stats.paired import STAKES, STEEPNESS, log_swap, log_wealth


def test_the_lady_tasting_tea() -> None:
    """Fisher 1935: eight cups, four with milk first, and she names all four: 1 in 70."""
    right, others = np.array([0.0, 4]), np.array([4.0, 0])
    certain = log_e_odds(np.array([25.0]), np.float64(0), right, others)
    assert np.exp(certain) == pytest.approx(70)
    assert 1 / np.exp(certain) == pytest.approx(stats.fisher_exact([[4, 0], [0, 4]], alternative="greater").pvalue)
    # Of a lady who always knows, one wrong cup is the end.
    assert log_e_odds(np.array([25.0]), np.float64(0), np.array([1.0, 3]), np.array([3.0, 1])) < -20


def test_the_physicians_health_study() -> None:
    """Agresti's table of 1988: heart attacks of 189 in 11,034 on placebo, 104 in 11,037 on aspirin; odds ratio 1.83."""
    odds = np.linspace(1, 3, 2001)
    placebo, aspirin = np.array([11034.0 - 189, 189]), np.array([11037.0 - 104, 104])
    evidence = log_e_odds(np.log(odds), np.float64(0), placebo, aspirin)
    assert odds[np.argmax(evidence)] == pytest.approx(1.83, abs=0.01)
    # Twice the logarithm is the chi-squared of the likelihood ratio; the book's, by Pearson's formula, is 25.0.
    pearson = stats.chi2_contingency(np.stack([placebo, aspirin]), correction=False).statistic
    assert pearson == pytest.approx(25.0, abs=0.05)
    assert 2 * evidence.max() == pytest.approx(pearson, rel=0.03)


def test_betting_by_hand() -> None:
    """A share of 0.4 of the wealth on a gain of 0.5 and on a loss of 0.2: 1.2 times 0.92."""
    wealth = np.exp(log_wealth(np.array([0.5, -0.2, np.nan])))
    assert wealth[STAKES.index(0.4)] == pytest.approx(1.2 * 0.92)
    assert wealth == pytest.approx([(1 + 0.5 * stake) * (1 - 0.2 * stake) for stake in STAKES])


def test_a_share_is_walds_ratio() -> None:
    process, bound, (hits, misses) = ShareProcess(0.9), 0.9, (7, 3)
    process.feed(np.asarray(hits), np.asarray(misses), 10)
    alternatives = [bound + (1 - bound) * step for step in STEPS]
    ratios = [(each / bound) ** hits * ((1 - each) / (1 - bound)) ** misses for each in alternatives]
    assert np.exp(process.log_fine) == pytest.approx(np.mean(ratios))


def test_a_swap_is_the_canarys_part_of_both() -> None:
    canary, stable = 0.3, 0.2
    parts = [2 * canary**each / (canary**each + stable**each) for each in STEEPNESS]
    assert np.exp(log_swap(np.log([canary / stable]))) == pytest.approx(parts)


@pytest.mark.parametrize(("failed", "agree"), [((60, 60), False), ((160, 60), True)], ids=["equal", "worse"])
def test_fishers_exact_test_once(failed: tuple[int, int], agree: bool) -> None:
    canary, stable = ([2000 - each, each] for each in failed)
    process = FailureProcess(max_increase=0.02, temper=False)
    process.feed(np.asarray(canary, dtype=np.float64), np.asarray([stable], dtype=np.float64), 10)
    p_value = stats.fisher_exact([canary[::-1], stable[::-1]], alternative="greater").pvalue
    assert (p_value < 0.01, process.log_worse > np.log(100)) == (agree, agree)
    # No e-value can be surer than the test that looks only once: 1 / e is a p-value.
    assert np.exp(-process.log_worse) > p_value
