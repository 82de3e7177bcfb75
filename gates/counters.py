"""What a Prometheus counter gained within a window, from its raw samples.

`rate()` and `increase()` extrapolate to the window's ends and return fractions of requests; tests on
counts need the requests that were really counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Sample = tuple[float, float]
"""Unix time in seconds, and the counter's value."""


def gained(samples: Sequence[Sample], since: float) -> float:
    """What one series gained after `since`; `samples` are in order of time and reach back before it.

    A series whose first sample is later than `since` began within the window, so it began at 0.
    A value below the one before means that the process restarted and counted from 0 again.
    """
    before = [value for at, value in samples if at <= since]
    after = [value for at, value in samples if at > since]
    values = [before[-1] if before else 0.0, *after]
    return sum(now - last if now >= last else now for last, now in pairwise(values))
