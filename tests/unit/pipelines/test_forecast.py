"""How long a delivery still takes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fakes.delivery.records import START, Delivery, bad_answers

from pipelines.events.state import SLOWEST_PACE, DeliveryState, StepState, seconds_left, state_of


def test_before_the_start_and_after_the_end_no_one_knows() -> None:
    assert seconds_left(DeliveryState(), START) is None
    assert seconds_left(state_of(bad_answers()), START) is None


def test_waves_of_one_region_take_the_sum_of_their_steps() -> None:
    story = state_of(Delivery().open().events)
    assert seconds_left(story, START) == sum(step.expected_seconds for step in story.steps)


def test_a_wave_takes_as_long_as_its_slowest_region_and_then_bakes() -> None:
    steps = [("deploy@a", "a", 20.0), ("canary@a/5", "a", 30.0), ("deploy@b", "b", 25.0), ("bake@1", None, 10.0)]
    story = DeliveryState(
        steps=tuple(
            StepState(id=name, stage=name.partition("@")[0], region=region, wave=1, expected_seconds=seconds)
            for name, region, seconds in steps
        )
    )
    assert seconds_left(story, START) == 60


def test_time_left_shrinks_while_a_step_runs() -> None:
    story = state_of(Delivery().open().say("build", "started").events)
    before, after = seconds_left(story, START), seconds_left(story, START + timedelta(seconds=4))
    assert before is not None
    assert after == before - 4


@pytest.mark.parametrize(("times", "pace"), [(1, 1), (2, 2), (1000, SLOWEST_PACE)])
def test_the_steps_so_far_set_the_pace_of_the_rest(times: float, pace: float) -> None:
    opened = Delivery().open()
    build, *rest = state_of(opened.events).steps
    story = state_of(opened.pass_through("build", times * build.expected_seconds).events)
    assert seconds_left(story, opened.now) == pace * sum(step.expected_seconds for step in rest)


def test_a_step_that_is_overdue_promises_nothing_for_itself() -> None:
    opened = Delivery().open()
    build, *rest = state_of(opened.events).steps
    story = state_of(opened.say("build", "started").events)
    late = opened.now + timedelta(seconds=2 * build.expected_seconds)
    assert seconds_left(story, late) == 2 * sum(step.expected_seconds for step in rest)


def test_once_something_failed_no_one_knows() -> None:
    delivery = Delivery().open().say("build", "started").say("build", "failed", "no memory", after=1)
    assert seconds_left(state_of(delivery.events), delivery.now) is None


def test_while_a_region_is_taken_back_no_one_knows() -> None:
    delivery = Delivery().open().pass_through("build", 5).say("undo@eu-west-1", "started")
    assert seconds_left(state_of(delivery.events), delivery.now) is None
