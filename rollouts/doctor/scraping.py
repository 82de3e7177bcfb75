"""How often Prometheus really scrapes a region's engines, beside what the spec says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta

from tidegate.core.model import Value
from tidegate.core.quantities import format_duration

TOLERATED = 0.2
"""Of the interval: a scrape that came late, or was missed, is no other interval."""


class Scraping(Value):
    """What is asked, and what the answer should be."""

    query: str
    """PromQL: seconds between two samples, the longest of all engines; NaN or nothing before there are two."""
    interval: timedelta
    """As the spec has it."""
    look: timedelta
    """Between two batches of evidence."""

    def seen(self, samples: Sequence[float]) -> timedelta | None:
        """The interval in an answer; None when there is no engine yet, or one that was scraped once."""
        known = [seconds for seconds in samples if math.isfinite(seconds) and seconds > 0]
        return timedelta(seconds=round(max(known), 1)) if known else None

    def differs(self, seen: timedelta) -> bool:
        """Whether that is another interval than the spec's."""
        return abs(seen - self.interval) > TOLERATED * self.interval

    def told(self, seen: timedelta) -> str:
        """Both, and what a look has of it."""
        in_look = format_duration(self.look)
        return (
            f"Prometheus scrapes engines every {format_duration(seen)}, and `metrics.scrape_interval` is "
            f"{format_duration(self.interval)}: a look of {in_look} has {_scrapes(self.look / seen)} of each"
        )


def _scrapes(number: float) -> str:
    return f"{number:.0f} scrapes" if number >= 1.5 else "one scrape" if number >= 1 else "not even one scrape"
