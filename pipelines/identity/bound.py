"""What a statement is bound to: the plan, and the evidence that there was to see. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256

from pipelines.model import Plan
from pipelines.ports import Event
from pipelines.recorded import before


def plan_digest(events: Iterable[Event]) -> str:
    """Of the plan as the delivery was opened with it, versions and files' digests included."""
    opened = [event for event in events if (event.step, event.kind) == ("delivery", "started")]
    return _digest([dict(opened[0].data) if opened else None])


def evidence_digest(plan: Plan, asked: str, events: Iterable[Event]) -> str:
    """Of every verdict of the steps before what is asked: in its region and in all waves before."""
    first = next(step for step in plan.steps if asked in step.approvals)
    earlier = {step.id for step in before(plan, first)}
    return _digest([_content(event) for event in events if event.kind == "verdict" and event.step in earlier])


def freeze_digest(until: datetime, reason: str) -> str:
    """Of one freeze: whoever lifts it lifts no other."""
    return _digest([until.astimezone(UTC).isoformat(), reason])


def ledger_digest(events: Iterable[Event]) -> str:
    """Of all that has happened so far: what is said of it counts once, before anything else is written."""
    return _digest([_content(event) for event in events])


def _content(event: Event) -> Sequence[object]:
    return event.at.astimezone(UTC).isoformat(), event.step, event.kind, event.message, dict(event.data)


def _digest(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()
