"""Pairs of windows on which a canary's burn is judged, scaled from an alert's hours to a stage's minutes."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from slo.windows.model import Windows
from tidegate.core.model import Value

SHORTEST = timedelta(minutes=1)
"""Four scrapes at Prometheus' usual 15 s: a rate over less is often no rate at all."""


class Pair(Value):
    """Both windows have to burn: the long one says that it matters, the short one that it still goes on."""

    name: str
    long: timedelta
    short: timedelta
    factor: float = Field(gt=0)
    """Times the speed that spends the error budget exactly in the SLO's window."""


def paging(windows: Windows) -> tuple[Pair, ...]:
    """The two speeds of the alert that pages, of SLOs over the same period."""
    speeds = {"fast": windows.page.quick, "slow": windows.page.slow}
    return tuple(
        Pair(name=name, long=window.long, short=window.short, factor=window.factor) for name, window in speeds.items()
    )


def scaled(pairs: tuple[Pair, ...], stage: timedelta) -> tuple[Pair, ...]:
    """The same factors on windows shrunk so that the longest one is the stage; whole seconds, a minute at least."""
    longest = max(pair.long for pair in pairs)

    def shrunk(window: timedelta) -> timedelta:
        return max(timedelta(seconds=round(window / longest * stage.total_seconds())), SHORTEST)

    return tuple(pair.model_copy(update={"long": shrunk(pair.long), "short": shrunk(pair.short)}) for pair in pairs)


def can_burn(pair: Pair, error_budget: float) -> bool:
    """Whether the pair could ever fire: when every event is bad, the burn is one over the budget."""
    return pair.factor * error_budget < 1
