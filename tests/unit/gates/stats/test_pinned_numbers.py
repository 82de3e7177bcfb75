"""The numbers of `e-values/4`: a change that moves them is another method, and needs another name."""

from __future__ import annotations

import numpy as np
import pytest

from gates.stats.binary import FailureProcess
from gates.stats.paired import PairedScoresProcess, PairedTimesProcess
from gates.stats.times import LatencyProcess


def test_times() -> None:
    process = LatencyProcess((0.1, 0.2, 0.4), quantile=0.75, max_increase=1.0, tolerance=0.1, temper=False)
    process.learn(np.array([[30.0, 20, 10, 5]]), 60)
    for canary in ([2.0, 1, 1, 0], [3.0, 1, 0, 0], [1.0, 2, 0, 1]):
        process.feed(np.array(canary), np.array([[4.0, 3, 2, 1]]), 30)
    assert (process.log_worse, process.log_fine) == pytest.approx((-0.40144591223092196, 0.9912746260423799))


def test_failures() -> None:
    process = FailureProcess(max_increase=0.05, temper=False)
    process.learn(np.array([[90.0, 1]]), 60)
    for canary in ([20.0, 0], [18.0, 1], [25.0, 0]):
        process.feed(np.array(canary), np.array([[40.0, 1]]), 30)
    assert (process.log_worse, process.log_fine) == pytest.approx((-0.3672418392073787, 1.6623069205240908))


@pytest.mark.parametrize(
    ("process", "numbers"),
    [
        (PairedTimesProcess(max_increase=0.5, tolerance=0.1), (-0.33770123482244596, 3.372173092839834)),
        (PairedScoresProcess(max_drop=0.2), (0.024390364806864767, 0.7822374167871623)),
    ],
    ids=["times", "scores"],
)
def test_pairs(process: PairedTimesProcess | PairedScoresProcess, numbers: tuple[float, float]) -> None:
    for draws in ([0.1, -0.2, 0.05], [0.3, 0.0, -0.1]):
        process.feed(np.array(draws), 30)
    assert (process.log_worse, process.log_fine) == pytest.approx(numbers)
