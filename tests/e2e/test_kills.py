"""kill -9 of everything in mid-canary, with users on it: what they see, and who puts it right."""

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


def test_a_killed_canary_costs_the_requests_that_were_on_it_and_no_others(
    story: Story, given: Given, when: When, then: Then
) -> None:
    given.a_fleet()
    given.a_healthy_challenger()
    given.users()
    when.a_delivery_runs()
    when.weight_reaches(50)
    when.kill(Victim.CANARY)
    then.exits(1)
    then.users_are_served_again()
    then.region_serves(story.champion)
    then.no_engine_of(story.challenger)
    then.users_failed_in_flight_only()
    then.ledger_says("rolled-back", "canary@eu-west-1/50: the canary does not serve; its log ends with: ")


def test_a_killed_proxy_is_back_and_the_delivery_comes_to_an_end(
    story: Story, given: Given, when: When, then: Then
) -> None:
    given.a_fleet()
    given.a_healthy_challenger()
    given.users()
    when.a_delivery_runs(canary_lasts="10s")
    when.weight_reaches(50)
    when.kill(Victim.PROXY)
    then.users_are_served_again()
    then.the_proxy_is_back()
    then.it_is_delivered_or_taken_back()
    then.users_failed_until_served_again()
