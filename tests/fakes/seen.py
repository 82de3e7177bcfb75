"""Made-up deliveries as the live page sees them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fakes.deliveries import START
from pipelines.page.model import Look, Seen, View
from pipelines.story import tell
from registry.model import DeliverySummary, Event
from registry.triggers.model import Entry

ID = "0123456789abcdef0123456789abcdef"


def summary_of(events: Sequence[Event], *, id: str = ID) -> DeliverySummary:
    """As the ledger's tags show these events."""
    story = tell(events)
    began = story.started or START
    return DeliverySummary(
        id=id, name="support-llm", version=story.version or "9", champion=story.champion, started=began,
        ended=story.ended, outcome=story.outcome, reason=story.reason or None, last_step=events[-1].step if events else
        None, host="here", pid=7, heartbeat=began,
    )  # fmt: skip


def seen(events: Sequence[Event], *, id: str = ID, alive: bool | None = None) -> Seen:
    """A delivery; alive unless it is over."""
    summary = summary_of(events, id=id)
    return Seen(summary=summary, alive=summary.ended is None if alive is None else alive, story=tell(events))


def view(*deliveries: Seen, wishes: Sequence[Entry] = (), after: float = 0.0) -> View:
    """All is well, and was looked at `after` so many seconds."""
    now = START + timedelta(seconds=after)
    return View(model="support-llm", now=now, look=Look(at=now, deliveries=deliveries, wishes=tuple(wishes)))
