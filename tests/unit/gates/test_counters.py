"""What counters gained, and what cannot be a counter."""

from __future__ import annotations

import pytest

from gates.evidence.counters import Origin
from gates.evidence.names import INSTANCE, JOB
from gates.evidence.series import Targets

CONTINUES, ZERO, UNDATED = Origin.CONTINUES, Origin.ZERO, Origin.UNDATED


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
