"""What events say to a process that was not there: the plan, what is done, what failed first, how it ended."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fakes.delivery.records import bad_answers, delivered
from fakes.delivery.world import World

from pipelines.events.history import (
    done_steps,
    first_failure,
    missing_before,
    outcome_of,
    plan_of,
    spec_file_of,
    step_of,
)
from pipelines.events.payloads import Closing
from pipelines.model import Ending
from registry.model import Event
from tidegate.core.errors import ExitCode, NotGenuine, UsageError

AT = datetime(2026, 1, 1, tzinfo=UTC)


def said(*words: str, **data: object) -> list[Event]:
    """Events of `STEP KIND [MESSAGE]`."""
    parts = [word.split(" ", 2) for word in words]
    return [Event(at=AT, step=step, kind=kind, message=" ".join(rest), data=data) for step, kind, *rest in parts]


async def test_the_plan_is_read_back_but_for_its_forecasts(world: World) -> None:
    await world.context().journal.opened(world.plan, spec_file="eu/delivery.yaml")
    plain = [step.model_copy(update={"gates": ()}) for step in world.plan.steps]
    assert plan_of(world.ledger.events) == world.plan.model_copy(update={"steps": tuple(plain)})
    assert spec_file_of(world.ledger.events) == "eu/delivery.yaml"


@pytest.mark.parametrize("events", [[], delivered()])
def test_a_ledger_without_a_plan_is_told(events: list[Event]) -> None:
    with pytest.raises(UsageError, match="this delivery's ledger holds no plan; deliver the version again"):
        plan_of(events)
    assert spec_file_of(events) is None


def test_a_step_is_done_until_it_is_undone_or_begun_again() -> None:
    events = said("build started", "build done", "deploy@a done", "smoke@a done", "deploy@a undone", "smoke@a started")
    assert done_steps(events) == {"build"}


def test_the_first_failure_counts_unless_the_step_was_done_after_all() -> None:
    events = said("canary@a/5 failed slow", "canary@b/5 failed asked to stop", ending="rolled-back", exit_code=1)
    found = first_failure(events)
    assert found is not None
    assert (found.step, found.ending, found.reason, found.exit_code) == ("canary@a/5", Ending.ROLLED_BACK, "slow", 1)
    later = first_failure([*events, *said("canary@a/5 done")])
    assert later is not None
    assert later.step == "canary@b/5"


def test_a_region_that_could_not_be_taken_back_is_not_why_it_ended() -> None:
    assert first_failure(said("undo@a failed lost")) is None


def test_the_end_is_read_from_the_event_and_not_guessed() -> None:
    assert outcome_of(delivered()[:-1], "7") is None
    result = outcome_of(bad_answers(), "7")
    assert result is not None
    assert (result.delivery, result.ending, result.exit_code) == ("7", Ending.ROLLED_BACK, ExitCode.ROLLED_BACK)
    assert result.reason.startswith("quality: worse than the champion")


def test_what_must_be_done_first_is_the_own_lane_and_all_waves_before(world: World) -> None:
    plan = world.plan
    ids = [step.id for step in plan.steps]
    for at, step in enumerate(plan.steps):
        assert missing_before(plan, step, frozenset(ids[:at])) == []
    assert missing_before(plan, step_of(plan, "deploy@us-east-1"), frozenset(ids[: ids.index("bake@1")])) == ["bake@1"]


def test_an_ending_that_there_is_not_is_nobodys() -> None:
    event = Closing(outcome="x\n::error::y").event(AT, "delivery")
    with pytest.raises(NotGenuine, match="delivery d1 ended in no way that there is: 'x ::error::y'"):
        outcome_of([event], "d1")
