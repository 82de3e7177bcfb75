"""One notification of each kind, for people to look at before a delivery sends them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from pipelines.authority.approvals import ApprovalRule, Frozen
from pipelines.model import Ending, Left
from pipelines.run.rollback import closing_command
from pipelines.spec.approvals import ProvenBy
from pipelines.views.notifications import DeliverySubject, Notification, notification_of
from registry.model import Event


def samples(subject: DeliverySubject, at: datetime) -> Iterator[Notification]:
    """Made of events as a delivery says them, in the way in which real ones are made."""
    region = subject.regions[-1]
    step, reason = f"canary@{region}/25", "gate latency: canary TTFT is 300 ms against 100 ms on stable"
    serves = f"25 % of users on version {subject.version} when it was last seen, at {at:%H:%M:%S} UTC"
    close = closing_command(Path("delivery.yaml"), region)
    left = Left(region=region, since=at, serves=serves, command=close)
    freeze = Frozen(since=at, until=at + timedelta(hours=12), reason="weekend", terms=ApprovalRule(by=ProvenBy()))
    for name, kind, message, data in (
        ("delivery", "started", "", {}),
        (f"deploy@{region}", "waiting", str(freeze), {"frozen_until": freeze.until.isoformat(), "evidence": ""}),
        (f"promote@{region}", "waiting", "", {"approval": f"promote@{region}", "evidence": ""}),
        (step, "failed", reason, {"ending": str(Ending.ROLLED_BACK)}),
        ("delivery", "left", f"rolled-back: {reason}; still open: {left}", {"left": [left.model_dump(mode="json")]}),
        ("delivery", "closed", "", {"outcome": str(Ending.ROLLED_BACK), "reason": f"{step}: {reason}"}),
    ):
        news = notification_of(Event(at=at, step=name, kind=kind, message=message, data=data), subject)
        if news:
            yield news
