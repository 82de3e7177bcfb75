"""`tidegate approve`: what a person says to a delivery that asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelines.approvals import refuse_useless
from pipelines.ports import Event
from pipelines.recorded import plan_of
from tidegate.cli.compose import open_deliveries
from tidegate.cli.output import say
from tidegate.core.clock import SystemClock
from tidegate.core.errors import Refused, UsageError


@dataclass(frozen=True)
class Answer:
    """What a person says."""

    delivery: str
    asked: str
    by: str
    reason: str
    refuse: bool


def run(answer: Answer, state: Path, tracking_uri: str | None) -> int:
    """Write the answer into the delivery's ledger; the step that waits reads it there.

    Raises:
        UsageError: nobody asks for it, or a refusal gives no reason.
        Refused: the delivery is over, or what waits for it has begun.
    """
    if answer.refuse and not answer.reason:
        raise UsageError("a refusal without a reason", hint="add --reason TEXT: it becomes the delivery's")
    deliveries = open_deliveries(state, tracking_uri)
    summary = deliveries.summary(answer.delivery)
    if summary.ended is not None:
        raise Refused(f"delivery {answer.delivery} is over: {summary.outcome}: {summary.reason}")
    # Said from outside: that a person answers does not mean that the delivery's process lives.
    ledger = deliveries.join(answer.delivery, carries=False)
    events = ledger.recorded()
    refuse_useless(plan_of(events), events, answer.asked)
    word = "refused" if answer.refuse else "approved"
    message = f"{answer.by}: {answer.reason}" if answer.reason else answer.by
    said = {"by": answer.by, "reason": answer.reason}
    ledger.append(Event(at=SystemClock().now(), step=answer.asked, kind=word, message=message, data=said))
    say(f"{word}: {answer.asked} of {summary.name} {summary.version}")
    return 0
