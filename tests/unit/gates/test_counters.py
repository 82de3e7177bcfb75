"""What counters gained, and what cannot be a counter."""

from __future__ import annotations

import pytest

from gates.evidence.counters import Origin, counted, gains
from gates.evidence.names import INSTANCE, JOB
from gates.evidence.series import Targets

CONTINUES, ZERO, UNDATED = Origin.CONTINUES, Origin.ZERO, Origin.UNDATED


@pytest.mark.parametrize(
    ("values", "origins", "expected"),
    [
        ([10, 12, 15], [UNDATED, CONTINUES, CONTINUES], [0, 2, 3]),
        ([3, 7], [ZERO, CONTINUES], [3, 4]),
        ([10, 12, 4], [UNDATED, CONTINUES, CONTINUES], [0, 2, 4]),
        ([10, 12], [UNDATED, ZERO], [0, 12]),
        ([10, 4000], [UNDATED, UNDATED], [0, 0]),
    ],
    ids=["running", "began", "restarted", "restarted and caught up", "took another role"],
)
def test_each_sample_gains_over_the_one_before(values: list[float], origins: list[Origin], expected: list[int]) -> None:
    assert gains(counted([[value] for value in values]), origins)[:, 0].tolist() == expected


def test_columns_restart_together() -> None:
    assert gains(counted([[0, 9], [4, 1]]), [ZERO, CONTINUES]).tolist() == [[0, 9], [4, 1]]


@pytest.mark.parametrize(
    ("times", "up", "started", "expected"),
    [
        ([12, 14], [(10, 1), (12, 1), (14, 1)], [], [ZERO, CONTINUES]),
        ([12, 16], [(12, 1), (14, 1), (16, 1)], [], [UNDATED, ZERO]),
        ([12, 16], [(10, 0), (12, 1), (14, 0), (16, 1)], [], [UNDATED, CONTINUES]),
        ([12.5, 14.5], [(12, 1), (14, 1)], [], [UNDATED, CONTINUES]),
        ([120], [(120, 1)], [(120, 5.0)], [UNDATED]),
        ([100], [(100, 1)], [(12, 95.0)], [UNDATED]),
        ([12, 14], [(12, 1), (14, 1)], [(12, 5.0), (14, 5.4)], [ZERO, CONTINUES]),
    ],
    ids=[
        "began",
        "was away",
        "scrapes failed",
        "times of its own",
        "too old",
        "start unknown by now",
        "clock corrected",
    ],
)
def test_a_sample_begins_or_counts_on_as_scrapes_and_starts_tell(
    times: list[float], up: list[tuple[float, float]], started: list[tuple[float, float]], expected: list[Origin]
) -> None:
    labels = {JOB: "engine", INSTANCE: "10.0.0.1:8000"}
    assert Targets([(labels, up)], [(labels, started)], lookback_seconds=60).origins(labels, times) == expected
