"""kill -9 of a delivery in mid-canary, with users on it: what they see, and who puts it right."""

from __future__ import annotations

import pytest
from e2e.given import Given
from e2e.story import Story
from e2e.then import Then
from e2e.when import Victim, When

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400), pytest.mark.long]


def test_a_killed_delivery_is_taken_back_by_the_fleet_and_closed_by_the_next(
    story: Story, given: Given, when: When, then: Then
) -> None:
    given.a_fleet()
    given.a_healthy_challenger()
    given.users()
    when.a_delivery_runs()
    when.weight_reaches(50)
    then.another_delivery_is_refused()
    when.kill(Victim.DELIVERY)
    then.region_serves(story.champion)
    then.no_engine_of(story.challenger)
    then.status_says("died at canary@eu-west-1/50", f"eu-west-1: steady, stable {story.champion}")
    when.delivered()
    then.exits(0)
    then.the_one_before_is_closed_as("interrupted", "died")
    then.the_one_before_replays("shadow@eu-west-1", "canary@eu-west-1")
    then.ledger_says("delivered")
    then.region_serves(story.challenger)
    then.users_failed(0)
