"""A delivery's ways to end, with users on it all the time."""

from __future__ import annotations

import pytest
from e2e.given import Given
from e2e.story import Story
from e2e.then import Then
from e2e.when import Victim, When

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(2400),
    pytest.mark.slow(reason="real engines start, and users bring the evidence"),
]


def test_a_healthy_re_export_is_delivered_and_no_user_notices(
    story: Story, given: Given, when: When, then: Then
) -> None:
    given.a_fleet()
    given.a_healthy_challenger()
    given.users()
    when.delivered()
    then.exits(0)
    then.region_serves(story.challenger)
    then.users_failed(0)
    then.users_met(story.champion, story.challenger)
    then.aliases(champion=story.challenger, previous=story.champion, challenger=None)
    then.ledger_says("delivered")
    then.run_shows("FINISHED")
    then.report_is_there()
    then.an_slo_counts(slo="ttft", edge="0.2")
    then.a_replay_says_the_same("shadow@eu-west-1", "canary@eu-west-1")


def test_other_weights_are_taken_back_before_any_user_meets_them_and_nothing_outlives_a_host_that_is_killed(
    story: Story, given: Given, when: When, then: Then
) -> None:
    given.a_fleet()
    given.a_challenger_with_other_weights()
    given.users()
    when.delivered()
    then.exits(1)
    then.region_serves(story.champion)
    then.no_engine_of(story.challenger)
    then.users_failed(0)
    then.users_met(story.champion)
    then.aliases(champion=story.champion, challenger=story.challenger)
    then.ledger_says("rolled-back", "gate quality: ")
    then.version_is_tagged(story.challenger, "rolled-back", "gate quality: ")
    when.kill(Victim.HOST)
    then.nothing_runs()
