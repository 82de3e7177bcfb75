"""Whether nothing may begin now, and until when. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

from pipelines.approval_spec import FreezeSpec
from tidegate.core.model import Value


class Frozen(Value):
    """A freeze that holds now."""

    until: datetime
    reason: str

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
    return Frozen(until=end, reason=freeze.reason) if start <= now < end else None
