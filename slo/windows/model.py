"""The windows of one SLO period: two speeds for each of the two alerts, two windows for each speed."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from tidegate.core.model import Value

_HOUR = timedelta(hours=1)


class Window(Value):
    """One speed of burning: so much of the budget in the long window, and still so fast in the short one."""

    short: timedelta
    """Ends the alert soon after the burn has ended."""
    long: timedelta
    error_budget_percent: float = Field(gt=0, le=100)
    """The share of the period's error budget that is spent in the long window, 0 to 100."""
    period: timedelta

    @property
    def factor(self) -> float:
        """Times the speed that spends the whole budget exactly in the period."""
        # In this order, and no other: the last digit stands in the rules, and is Sloth's.
        return self.error_budget_percent * _hours(self.period) / 100 / _hours(self.long)


class Speeds(Value):
    """A fast burn for a short time, or a slow one for a long time."""

    quick: Window
    slow: Window


class Windows(Value):
    """What fits SLOs of one period."""

    period: timedelta
    page: Speeds
    ticket: Speeds

    @property
    def lengths(self) -> tuple[timedelta, ...]:
        """Every window that something is recorded over, the shortest first, the period last."""
        pairs = (self.page.quick, self.page.slow, self.ticket.quick, self.ticket.slow)
        return tuple(sorted({self.period, *(length for pair in pairs for length in (pair.short, pair.long))}))


def _hours(length: timedelta) -> float:
    whole, rest = divmod(length, _HOUR)
    return whole + rest / _HOUR
