"""A delivery's events become what a person wants to know of it."""

from __future__ import annotations

import pytest
from fakes.delivery.records import Delivery, delivered, slow

from pipelines.events.state import DeliveryState, state_of
from tidegate.core.errors import NotGenuine


def weights(story: DeliveryState, region: str) -> list[int]:
    return [change.weight for each in story.regions if each.name == region for change in each.history]


def test_telling_all_at_once_equals_telling_event_by_event() -> None:
    story = DeliveryState()
    for event in slow():
        story = story.apply(event)
    assert story == state_of(slow())


def test_repeating_a_traffic_state_adds_nothing_to_its_history() -> None:
    delivery = Delivery().open().traffic("canary@eu-west-1/25", weight=25).traffic("canary@eu-west-1/25", weight=25)
    assert weights(state_of(delivery.events), "eu-west-1") == [25]


def test_a_promoted_region_is_all_on_the_new_version_even_when_its_canary_weight_is_zero() -> None:
    delivery = Delivery().open().say("promote@eu-west-1", "started").traffic("promote@eu-west-1", weight=0)
    assert state_of(delivery.events).regions[0].weight == 100


def test_one_gate_in_two_steps_is_two_gates_of_the_story() -> None:
    steps = [gate.step for gate in state_of(delivered()).gates if gate.name == "latency"]
    assert len(steps) == len(set(steps)) == 4


def test_an_unknown_outcome_is_an_error_and_never_a_pass() -> None:
    delivery = Delivery().open().verdict("offline@eu-west-1", "quality", "fine", "?")
    with pytest.raises(NotGenuine, match=r"found .fine.; expected one of"):
        state_of(delivery.events)
