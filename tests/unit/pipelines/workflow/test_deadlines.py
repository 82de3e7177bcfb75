"""No pod is ended before its step would have ended itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from alike import some
from fakes.workflow.cases import CASES, blueprint

from pipelines.model import PlanStep, StageName
from pipelines.workflow.template import WEEK, deadline


def of(case: str, stage: str, **where: object) -> timedelta:
    """The deadline of the first such step."""
    drawn = blueprint(case)

    def fits(step: PlanStep) -> bool:
        return step.stage == stage and all(getattr(step, name) == value for name, value in where.items())

    return deadline(drawn.spec, drawn.fleet, next(filter(fits, drawn.steps)), drawn.steps)


@pytest.mark.parametrize("case", some(CASES, every=3))
def test_every_step_has_its_own_time_and_that_of_a_silent_region(case: str) -> None:
    drawn = blueprint(case)
    own = {
        StageName.SHADOW: drawn.spec.shadow.within if drawn.spec.shadow else timedelta(0),
        StageName.CANARY: drawn.spec.canary.within if drawn.spec.canary else timedelta(0),
        StageName.BAKE: drawn.spec.regions.bake,
        StageName.DEPLOY: drawn.fleet.pod.start_within,
    }
    for step in drawn.steps:
        least = own.get(step.stage, timedelta(0)) + drawn.spec.patience.api
        assert deadline(drawn.spec, drawn.fleet, step, drawn.steps) > least, step.id


def test_people_who_are_asked_have_their_time() -> None:
    asked, other = (of("approvals", "canary", weight=5, region=region) for region in ("eu-west-1", "us-east-1"))
    assert asked - other == timedelta(hours=4)
    assert of("approvals", "deploy", wave=2) - of("approvals", "deploy", wave=1) == timedelta(days=2)


def test_a_freeze_is_waited_for_by_what_changes_a_region_alone() -> None:
    year_end = timedelta(days=19)
    assert of("freeze", "deploy") - of("one-region", "deploy") == WEEK + year_end
    assert of("freeze", "bake") == of("one-region", "bake")
