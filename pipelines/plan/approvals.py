"""Which steps of a plan wait for an approval, and the name of the answer that they wait for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.model import PlanStep, StageName
from pipelines.spec.approvals import ApprovalSpec


def with_approvals(approvals: Sequence[ApprovalSpec], steps: Sequence[PlanStep]) -> Iterator[PlanStep]:
    """The steps, each with what must be approved before it begins."""
    for step in steps:
        asked = tuple(dict.fromkeys(name for each in approvals if (name := asked_before(each, step, steps))))
        yield step.model_copy(update={"approvals": asked}) if asked else step


def asked_before(approval: ApprovalSpec, step: PlanStep, steps: Sequence[PlanStep]) -> str | None:
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
