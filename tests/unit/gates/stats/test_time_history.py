"""What is kept of stable's times, and for how long."""

from __future__ import annotations

import numpy as np
import pytest

from gates.stats.times import RECENT_REQUESTS, TimeHistory

EDGES = np.asarray([0.1, 0.2, 0.4])
SCRAPE = np.asarray([10.0, 40, 20, 10])


@pytest.mark.parametrize("seconds", [30.0, 300.0])
def test_a_long_scrape_leaves_what_many_short_ones_leave(seconds: float) -> None:
    once, often = (TimeHistory(EDGES, recent_of=0.5) for _ in range(2))
    once.feed(SCRAPE, seconds)
    for _ in range(100):
        often.feed(SCRAPE / 100, seconds / 100)
    # What comes next shows how much is left.
    for history in (once, often):
        history.feed(SCRAPE[::-1] / 4, 5)
    assert once.above() == pytest.approx(often.above(), rel=0.02)


def test_what_is_recent_is_of_so_many_requests_however_many_a_scrape_has() -> None:
    history = TimeHistory(EDGES, recent_of=0.5)
    before, now = np.asarray([0.0, 0, 0, 200]), np.asarray([0.0, 0.5, 0, 0])
    history.feed(before, 300)
    assert history.above()[-1] > 0.9
    # After a half-life, 24 requests at a median, those of before are the fewer, though they were 200.
    for _ in range(int(2 * 2 * RECENT_REQUESTS) + 2):
        history.feed(now, 1)
    assert history.above()[-1] < 0.5
