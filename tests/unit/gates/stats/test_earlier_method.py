"""What earlier methods judged is judged so again: numbers that their last versions gave."""

from __future__ import annotations

import numpy as np
import pytest

from gates.stats.binary import FailureProcess
from gates.stats.paired import PairedScoresProcess, PairedTimesProcess
from gates.stats.times import LatencyProcess


@pytest.mark.parametrize(
    ("healthy_bet", "log_fine"), [(False, 0.6985873868440743), (True, 0.9944059474030168)], ids=["2", "3"]
)
def test_times(healthy_bet: bool, log_fine: float) -> None:
    process = LatencyProcess(
        (0.1, 0.2, 0.4),
        quantile=0.75,
        max_increase=1.0,
        tolerance=0.1,
        temper=False,
        healthy_bet=healthy_bet,
        recent=False,
    )
    process.learn(np.array([[30.0, 20, 10, 5]]), 60)
    for canary in ([2.0, 1, 1, 0], [3.0, 1, 0, 0], [1.0, 2, 0, 1]):
        process.feed(np.array(canary), np.array([[4.0, 3, 2, 1]]), 30)
    assert process.log_fine == pytest.approx(log_fine)


def test_failures() -> None:
    process = FailureProcess(max_increase=0.05, temper=False, healthy_bet=False)
    process.learn(np.array([[90.0, 1]]), 60)
    for canary in ([20.0, 0], [18.0, 1], [25.0, 0]):
        process.feed(np.array(canary), np.array([[40.0, 1]]), 30)
    assert process.log_fine == pytest.approx(1.5616198368413752)


@pytest.mark.parametrize(
    ("process", "log_fine"),
    [
        (PairedTimesProcess(max_increase=0.5, tolerance=0.1, healthy_bet=False), 2.473351579816006),
        (PairedScoresProcess(max_drop=0.2, healthy_bet=False), 0.4036649659930275),
    ],
    ids=["times", "scores"],
)
def test_pairs(process: PairedTimesProcess | PairedScoresProcess, log_fine: float) -> None:
    for draws in ([0.1, -0.2, 0.05], [0.3, 0.0, -0.1]):
        process.feed(np.array(draws), 30)
    assert process.log_fine == pytest.approx(log_fine)
