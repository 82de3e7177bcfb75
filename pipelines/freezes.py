"""Whether nothing may begin now, and until when. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

from pipelines.answers import Terms
from pipelines.approval_spec import FreezeSpec
from tidegate.core.model import Value


class Frozen(Value):
    """A freeze that holds now."""

    since: datetime
    until: datetime
    reason: str
    terms: Terms
    """Who may let a delivery go on all the same."""

    def __str__(self) -> str:
        return f"until {self.until:%F %H:%M %Z}: frozen: {self.reason}"


def frozen(freezes: Iterable[FreezeSpec], now: datetime) -> Frozen | None:
    """The freeze that holds at `now`, of several the one that ends last; None when none does."""
    holding = [found for freeze in freezes if (found := _frozen(freeze, now))]
    return max(holding, key=lambda found: found.until, default=None)


def _frozen(freeze: FreezeSpec, now: datetime) -> Frozen | None:
    zone = ZoneInfo(freeze.timezone)
    start = freeze.start.last_before(now, zone)
    end = freeze.end.next_after(start, zone)
    if not start <= now < end:
        return None
    terms = Terms(by=freeze.lift, not_the_requester=freeze.not_the_requester)
    return Frozen(since=start, until=end, reason=freeze.reason, terms=terms)
