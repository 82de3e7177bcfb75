"""One notification of each kind, for people to look at before a delivery sends them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from pipelines.authority.approvals import ApprovalRule, Frozen
from pipelines.events.payloads import Closing, LeftBehind, Opening, StepFailure, Waiting
from pipelines.model import Ending, Left
from pipelines.spec.approvals import ProvenBy
from pipelines.views.notifications import DeliverySubject, Notification, notification_of


def samples(subject: DeliverySubject, at: datetime) -> Iterator[Notification]:
    """Made of events as a delivery says them, in the way in which real ones are made."""
    region = subject.regions[-1]
    step, reason = f"canary@{region}/25", "gate latency: canary TTFT is 300 ms against 100 ms on stable"
    serves = f"25 % of users on version {subject.version} when it was last seen, at {at:%H:%M:%S} UTC"
    left = Left(region=region, since=at, serves=serves)
    freeze = Frozen(since=at, until=at + timedelta(hours=12), reason="weekend", terms=ApprovalRule(by=ProvenBy()))
    ending = Ending.ROLLED_BACK
    for name, payload, message in (
        ("delivery", Opening(model=subject.model, version=subject.version, champion=subject.champion), ""),
        (f"deploy@{region}", Waiting(frozen_until=freeze.until, evidence=""), str(freeze)),
        (f"promote@{region}", Waiting(approval=f"promote@{region}", evidence=""), ""),
        (step, StepFailure(ending=ending), reason),
        ("delivery", LeftBehind(left=(left,)), f"rolled-back: {reason}; still open: {left}"),
        ("delivery", Closing(outcome=str(ending), reason=f"{step}: {reason}"), ""),
    ):
        news = notification_of(payload.event(at, name, message), subject)
        if news:
            yield news
