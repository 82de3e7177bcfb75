"""What people must approve, and what they have said. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from pipelines.answers import Terms
from pipelines.approval_spec import ApprovalSpec
from pipelines.model import Plan, StageName, Step
from pipelines.recorded import done_steps
from registry.model import Event
from tidegate.core.errors import Refused, UsageError

FREEZE = "freeze"
"""What is approved when a delivery shall go on though a freeze holds."""


def answering(delivery: str, asked: str, *, names: bool) -> str:
    """The command by which a person approves; `names` is whether it is enough to give one."""
    return f"`tidegate approve {delivery} {asked} {'--by NAME' if names else '--ssh-key FILE'}`"


def with_approvals(approvals: Sequence[ApprovalSpec], steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, each with what must be approved before it begins."""
    for step in steps:
        asked = tuple(dict.fromkeys(name for each in approvals if (name := asked_before(each, step, steps))))
        yield step.model_copy(update={"approvals": asked}) if asked else step


def asked_before(approval: ApprovalSpec, step: Step, steps: Sequence[Step]) -> str | None:
    """The name of what is asked before that step, such as `wave@2` or the step's own id; None when nothing is."""
    if approval.before == "wave":
        # A wave begins with the deployments of its regions; one answer is for all of them.
        begins = step.stage is StageName.DEPLOY and step.wave == approval.wave
        return f"wave@{approval.wave}" if begins else None
    if step.stage != approval.before or approval.region not in (None, step.region):
        return None
    first = min((each.weight for each in steps if each.weight is not None), default=None)
    wanted = (approval.weight or first) if step.stage is StageName.CANARY else None
    return step.id if step.weight == wanted else None


def patience(approvals: Sequence[ApprovalSpec], asked: str, steps: Sequence[Step]) -> timedelta:
    """How long to wait for that answer: of several entries that ask the same, the longest."""
    return max(each.within for each in approvals if any(asked_before(each, step, steps) == asked for step in steps))


def terms_of(approvals: Sequence[ApprovalSpec], asked: str, steps: Sequence[Step]) -> tuple[Terms, ...]:
    """Who must have answered that: of several entries that ask the same, what each of them says."""
    return tuple(
        Terms(by=each.by, not_the_requester=each.not_the_requester)
        for each in approvals
        if any(asked_before(each, step, steps) == asked for step in steps)
    )


def refuse_useless(plan: Plan, events: Sequence[Event], asked: str) -> None:
    """Say no to an answer that changes nothing.

    Raises:
        UsageError: nobody asks for it; says what is asked for.
        Refused: everything that waits for it has begun.
    """
    waiting = [step for step in plan.steps if asked in step.approvals]
    if asked == FREEZE:
        return
    if not waiting:
        known = dict.fromkeys(name for step in plan.steps for name in step.approvals)
        raise UsageError(
            f"this delivery asks nobody for `{asked}`",
            hint=f"it asks for: {', '.join(known) or 'nothing'}; or {FREEZE}",
        )
    done = done_steps(events)
    begun = done | {event.step for event in events if event.kind == "started"}
    if all(step.id in begun for step in waiting):
        raise Refused(f"{waiting[0].id} has begun already", hint="`tidegate rollback` takes a delivery back")
