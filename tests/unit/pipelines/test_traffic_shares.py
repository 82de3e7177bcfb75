"""What a plan expects a canary to see is what the stages will show it."""

from __future__ import annotations

import pytest
from fakes.delivery.world import a_spec

from pipelines.plan import gates


def test_a_canary_takes_its_users_from_stable() -> None:
    seen = gates.canary_traffic(a_spec(traffic="traffic: {requests_per_second: 100}"), 25)
    arrivals = seen.arrivals("users")
    assert (arrivals.canary, arrivals.stable) == (25, 75)
    assert seen.within_seconds == 300


def test_mirrored_users_are_answered_by_both_arms() -> None:
    spec = a_spec(
        traffic="traffic: {requests_per_second: 100}",
        shadow="  - shadow: {percent: 40, pairs_per_second: 3, at_least: 10s, within: 2m}",
    )
    seen = gates.shadow_traffic(spec)
    users, pairs = seen.arrivals("proxy"), seen.arrivals("probe")
    assert (users.canary, users.stable) == (40, 100)
    assert pairs.canary == pairs.stable == 3


def test_a_judge_sees_the_share_of_pairs_that_its_settings_say() -> None:
    judge = "  agreement: {min_similarity: 0.6}\n  judge: {endpoint: 'http://127.0.0.1:1/v1', model: m, sample: 10%}"
    seen = gates.shadow_traffic(a_spec(agreement=judge))
    assert seen.arrivals("probe", judged=True).canary == pytest.approx(0.1)
    assert seen.arrivals("probe").canary == 1


def test_looks_are_as_far_apart_as_the_budget_says() -> None:
    assert gates.canary_traffic(a_spec(), 10).look_seconds == 10


def test_traffic_that_nobody_stated_is_unknown() -> None:
    seen = gates.shadow_traffic(a_spec(traffic=""))
    assert not seen.timed("proxy")
    assert seen.timed("probe")
