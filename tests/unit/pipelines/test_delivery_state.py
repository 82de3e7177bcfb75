"""A delivery's events become what a person wants to know of it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fakes.delivery.records import START, Delivery, bad_answers, delivered, interrupted, slow

from gates.model import GateOutcome
from pipelines.events.state import DeliveryState, StepStatus, state_of
from tidegate.core.errors import NotGenuine


def states(story: DeliveryState) -> dict[str, StepStatus]:
    return {step.id: step.state for step in story.steps}


def weights(story: DeliveryState, region: str) -> list[int]:
    return [change.weight for each in story.regions if each.name == region for change in each.history]


def test_no_events_are_an_empty_story() -> None:
    story = state_of([])
    assert story.outcome is None
    assert story.elapsed_seconds(START) == 0


def test_the_opening_names_versions_and_lists_every_step_as_waiting() -> None:
    story = state_of(Delivery("3", champion="2").open().events)
    assert (story.model, story.version, story.champion) == ("support-llm", "3", "2")
    assert set(states(story).values()) == {StepStatus.WAITING}
    assert [region.name for region in story.regions] == ["eu-west-1", "us-east-1"]


def test_telling_all_at_once_equals_telling_event_by_event() -> None:
    story = DeliveryState()
    for event in slow():
        story = story.apply(event)
    assert story == state_of(slow())


def test_a_delivered_version_has_every_step_done_and_all_traffic_everywhere() -> None:
    story = state_of(delivered())
    assert set(states(story).values()) == {StepStatus.DONE}
    assert {region.weight for region in story.regions} == {100}
    assert weights(story, "us-east-1") == [25, 50, 100]
    assert (story.outcome, story.exit_code, story.deciding) == ("delivered", 0, None)


def test_mirroring_is_kept_next_to_the_weight() -> None:
    story = state_of(delivered())
    assert [change.mirror for change in story.regions[0].history] == [100, 0, 0, 0, 0]


def test_repeating_a_traffic_state_adds_nothing_to_its_history() -> None:
    delivery = Delivery().open().traffic("canary@eu-west-1/25", weight=25).traffic("canary@eu-west-1/25", weight=25)
    assert weights(state_of(delivery.events), "eu-west-1") == [25]


def test_a_promoted_region_is_all_on_the_new_version_even_when_its_canary_weight_is_zero() -> None:
    delivery = Delivery().open().say("promote@eu-west-1", "started").traffic("promote@eu-west-1", weight=0)
    assert state_of(delivery.events).regions[0].weight == 100


def test_the_gate_that_failed_decided_and_the_rest_of_the_plan_is_skipped() -> None:
    story = state_of(bad_answers())
    assert story.deciding is not None
    assert story.deciding.latest.outcome is GateOutcome.FAIL
    assert story.deciding.latest.numbers["canary_mean_score"] == 0.21
    assert states(story)["shadow@eu-west-1"] is StepStatus.SKIPPED
    assert states(story)["offline@eu-west-1"] is StepStatus.FAILED


def test_a_region_taken_back_shows_its_changes_as_undone_and_its_proofs_as_done() -> None:
    after = states(state_of(interrupted()))
    assert after["promote@eu-west-1"] is StepStatus.UNDONE
    assert after["canary@eu-west-1/25"] is StepStatus.UNDONE
    assert after["smoke@eu-west-1"] is StepStatus.DONE
    assert after["undo@eu-west-1"] is StepStatus.DONE


def test_an_undo_outside_the_plan_joins_the_steps_with_its_region() -> None:
    step = state_of(bad_answers()).step("undo@eu-west-1")
    assert step is not None
    assert (step.stage, step.region) == ("undo", "eu-west-1")


def test_a_gate_keeps_what_it_said_before() -> None:
    latency = next(gate for gate in state_of(slow()).gates if gate.name == "latency")
    assert [each.verdict.outcome for each in latency.history] == [GateOutcome.RUNNING] * 3 + [GateOutcome.FAIL]


def test_one_gate_in_two_steps_is_two_gates_of_the_story() -> None:
    steps = [gate.step for gate in state_of(delivered()).gates if gate.name == "latency"]
    assert len(steps) == len(set(steps)) == 4


def test_an_unknown_outcome_is_an_error_and_never_a_pass() -> None:
    delivery = Delivery().open().verdict("offline@eu-west-1", "quality", "fine", "?")
    with pytest.raises(NotGenuine, match=r"found .fine.; expected one of"):
        state_of(delivery.events)


def test_evidence_moves_the_progress_of_its_step() -> None:
    delivery = Delivery().open().say("offline@eu-west-1", "started")
    delivery.say("offline@eu-west-1", "evidence", "asked both", done=8, total=24)
    step = state_of(delivery.events).step("offline@eu-west-1")
    assert step is not None
    assert (step.message, step.progress) == ("asked both", (8, 24))


def test_elapsed_time_stops_with_the_delivery() -> None:
    story = state_of(bad_answers())
    assert story.ended is not None
    late = story.ended + timedelta(hours=1)
    assert story.elapsed_seconds(late) == story.elapsed_seconds(story.ended)


def test_a_step_still_running_at_the_end_failed() -> None:
    delivery = Delivery().open().say("build", "started").close("failed", "the registry is gone", 4)
    assert states(state_of(delivery.events))["build"] is StepStatus.FAILED
