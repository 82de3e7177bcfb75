"""The design effect: what stable pods differ by nature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gates.stats.spread import MOST_CARRIED, PRIOR_DEGREES, Spread

FAILED = np.array([[0.0, 1.0]])


def effect(pods: list[list[float]], *, canary: float | None = None, scrapes: int = 1) -> float:
    spread = Spread(1)
    for _ in range(scrapes):
        spread.feed(FAILED, np.asarray(pods), 10)
    total = np.sum(pods) * scrapes / len(pods) if canary is None else canary
    return float(spread.effect(np.asarray(total))[0])


def test_without_two_pods_there_is_nothing_to_compare() -> None:
    assert Spread(3).effect(np.asarray(100.0)).tolist() == [1, 1, 1]
    assert effect([[90, 10]], scrapes=20) == 1
    assert effect([[0, 0], [0, 0]]) == 1


def test_it_is_the_f_statistic_of_the_pods_with_a_prior() -> None:
    pods = [[90, 10], [80, 20], [97, 3], [88, 12]]
    groups = [np.repeat([0.0, 1.0], each) for each in pods]
    f, requests, between = stats.f_oneway(*groups).statistic, 400, len(pods) - 1
    explained = f * between / (f * between + requests - len(pods))
    expected = (PRIOR_DEGREES + requests * explained) / stats.chi2.ppf(0.1, PRIOR_DEGREES + between)
    assert effect(pods) == pytest.approx(expected)


def test_it_grows_with_the_difference_between_pods() -> None:
    found = [effect([[100 - each, each], [80 + each, 20 - each]]) for each in (10, 7, 4, 1)]
    assert found == sorted(found) and found[-1] > 1.5 * found[0]


def test_pods_that_are_alike_come_to_one_with_time() -> None:
    rng = np.random.default_rng(1)
    spread = Spread(1)
    for _ in range(400):
        failed = rng.binomial(50, 0.1, 20)
        spread.feed(FAILED, np.stack([50 - failed, failed], axis=-1).astype(np.float64), 10)
    assert 1 <= spread.effect(np.asarray(50.0 * 400))[0] < 1.7


def test_it_grows_with_the_canarys_requests_on_each_pod_but_not_forever() -> None:
    pods = [[90.0, 10.0], [70.0, 30.0]]
    small, same, large, huge = (effect(pods, canary=each) for each in (10, 100, 500, 1e9))
    # Few requests are tempered as if they were a stable pod's: noise that passes is as strong in the first ones.
    assert 1 < small == same < large < huge
    assert huge - 1 == pytest.approx(MOST_CARRIED * (same - 1))


def test_pods_may_appear_and_vanish() -> None:
    spread = Spread(2)
    log_h = np.array([[0.0, 1.0], [0.0, 0.0]])
    for pods in ([[9.0, 1.0]], [[9.0, 1.0], [5.0, 5.0]], [[0.0, 0.0], [8.0, 2.0]], [[0.0, 0.0]] * 3):
        spread.feed(log_h, np.asarray(pods), 3600)
    found = spread.effect(np.asarray(20.0))
    assert np.isfinite(found).all() and found[0] > 1
    spread.forget(1)
    assert np.isfinite(spread.effect(np.asarray(20.0))).all()
