"""The nouns of the page: what was seen at one look, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pipelines.story import Story
from registry.model import DeliverySummary
from registry.triggers.model import Entry
from tidegate.core.model import Value


class Seen(Value):
    """One delivery."""

    summary: DeliverySummary
    alive: bool
    """Whether somebody carries it; False for one that is over."""
    story: Story | None
    """None when its record cannot be read."""

    @property
    def over(self) -> bool:
        return self.summary.ended is not None


class Look(Value):
    """What the ledger and the inbox said at one moment."""

    at: datetime
    deliveries: tuple[Seen, ...] = ()
    """Newest first."""
    more: bool = False
    """Whether there are older ones, which are not shown."""
    wishes: tuple[Entry, ...] = ()
    """Those that have no delivery yet, oldest first."""


class View(Value):
    """What is known now."""

    model: str
    now: datetime
    look: Look | None = None
    """The last that succeeded; None before the first."""
    silent_since: datetime | None = None
    """The first of the looks that have failed since; None when the last one succeeded."""

    @property
    def newest(self) -> Seen | None:
        """The delivery that began last; None when there is none, or nothing is known yet."""
        return next(iter(self.look.deliveries), None) if self.look else None


class Picture(Value):
    """The page as it stands: its parts as HTML, by their ids in the page."""

    parts: Mapping[str, str]
    digest: str
    """Of all that does not change by time alone: two pictures with the same one say the same."""
