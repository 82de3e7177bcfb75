"""What counters gained, and what cannot be a counter."""

from __future__ import annotations

import numpy as np
import pytest

from gates.evidence.counters import NotCounts, Origin, counted, gains
from gates.evidence.names import INSTANCE, JOB
from gates.evidence.series import Targets

CONTINUES, ZERO, UNDATED = Origin.CONTINUES, Origin.ZERO, Origin.UNDATED
LABELS = {JOB: "engine", INSTANCE: "10.0.0.1:8000"}


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
    ("value", "said"),
    [
        (float("nan"), "no number"),
        (float("inf"), "no number"),
        (-1.0, "a negative count, -1"),
        (2.5, "no whole number, 2.5"),
        (2.0**60, "no whole number"),
    ],
)
def test_what_is_no_count_is_told(value: float, said: str) -> None:
    with pytest.raises(NotCounts, match=said):
        counted([[1.0], [value]])


def the_origins(
    times: list[float],
    up: list[tuple[float, float]],
    *,
    before: list[tuple[float, float]] | None = None,
    started: list[tuple[float, float]] | None = None,
) -> list[Origin]:
    """Of a canary's series; `before` are scrapes of the same address when it was something else."""
    canary = LABELS | {"role": "canary"}
    series = [(canary, up), (LABELS | {"role": "stable"}, before or [])]
    return Targets(series, [(canary, started or [])], lookback_seconds=60).origins(canary, times)


def test_a_series_that_a_good_scrape_did_not_have_begins_at_zero() -> None:
    assert the_origins([12, 14], [(10, 1), (12, 1), (14, 1)]) == [ZERO, CONTINUES]
    assert the_origins([12, 16], [(12, 1), (14, 1), (16, 1)]) == [UNDATED, ZERO]


def test_a_failed_scrape_says_nothing() -> None:
    assert the_origins([12, 16], [(10, 0), (12, 1), (14, 0), (16, 1)]) == [UNDATED, CONTINUES]


def test_after_a_change_of_role_nothing_is_taken_over() -> None:
    assert the_origins([14], [(14, 1)], before=[(10, 1), (12, 1)]) == [UNDATED]
    assert the_origins([10, 14], [(10, 1), (14, 1)], before=[(12, 1)]) == [UNDATED, UNDATED]


def test_the_start_of_the_process_tells_its_age() -> None:
    assert the_origins([12], [(12, 1)], started=[(12, 5.0)]) == [ZERO]
    assert the_origins([120], [(120, 1)], started=[(120, 5.0)]) == [UNDATED]
    assert the_origins([12, 14], [(12, 1), (14, 1)], started=[(12, 5.0), (14, 5.4)]) == [ZERO, CONTINUES]
    assert the_origins([12, 14], [(12, 1), (14, 1)], started=[(12, 5.0), (14, 13.5)]) == [ZERO, ZERO]


def test_without_knowledge_of_scrapes_a_series_only_counts_on() -> None:
    assert the_origins([12, 14], []) == [UNDATED, CONTINUES]
    # Samples with times of their own are in no scrape.
    assert the_origins([12.5, 14.5], [(12, 1), (14, 1)]) == [UNDATED, CONTINUES]


def test_a_gap_longer_than_looked_back_is_a_new_beginning_in_every_window() -> None:
    assert the_origins([10, 100], [(10, 1), (100, 1)]) == [UNDATED, UNDATED]


def test_gains_do_not_depend_on_where_a_window_is_cut() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        times = np.cumsum(rng.choice([2.0, 2.0, 2.0, 40.0, 90.0], 60))
        values = counted([[value] for value in np.abs(np.cumsum(rng.integers(-30, 60, 60)))])
        up = [(float(at), 1.0) for at in times if rng.random() < 0.8]
        whole = gains(values, the_origins(times.tolist(), up))
        for cut in rng.integers(1, 60, 5):
            # As an adapter sees it that asks from 60 s before the cut.
            seen = times >= times[cut] - 60
            part = gains(values[seen], the_origins(times[seen].tolist(), [s for s in up if s[0] >= times[cut] - 60]))
            assert part[times[seen] >= times[cut]].tolist() == whole[times >= times[cut]].tolist()
