"""One message of each kind, for people to look at before a delivery sends them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from pipelines.answers import Terms
from pipelines.approval_spec import ProvenBy
from pipelines.freezes import Frozen
from pipelines.model import Ending
from pipelines.notify.news import News, Subject, news_of
from pipelines.ports import Event


def samples(subject: Subject, at: datetime) -> Iterator[News]:
    """Made of events as a delivery says them, in the way in which real ones are made."""
    region = subject.regions[-1]
    step, reason = f"canary@{region}/25", "gate latency: canary TTFT is 300 ms against 100 ms on stable"
    freeze = Frozen(since=at, until=at + timedelta(hours=12), reason="weekend", terms=Terms(by=ProvenBy()))
    for name, kind, message, data in (
        ("delivery", "started", "", {}),
        (f"deploy@{region}", "waiting", str(freeze), {"frozen_until": freeze.until.isoformat(), "evidence": ""}),
        (f"promote@{region}", "waiting", "", {"approval": f"promote@{region}", "evidence": ""}),
        (step, "failed", reason, {"ending": str(Ending.ROLLED_BACK)}),
        ("delivery", "closed", "", {"outcome": str(Ending.ROLLED_BACK), "reason": f"{step}: {reason}"}),
    ):
        news = news_of(Event(at=at, step=name, kind=kind, message=message, data=data), subject)
        if news:
            yield news
