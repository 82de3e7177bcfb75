"""The steps of a trial, and the step at which an operation holds."""

from __future__ import annotations

import pytest
from fakes.fleet import release

from rollouts.manifests.objects.rollout import steps_of
from rollouts.manifests.spec import CanarySpec
from tidegate.core.model import Json


def steps(*weights: int, mirror: int = 100, engines: int = 4, **canary: int) -> list[Json]:
    return steps_of(release(mirror=mirror, weights=weights), CanarySpec.model_validate(canary), engines)


def test_a_canary_that_gets_copies_of_all_has_as_many_engines_as_the_stable() -> None:
    assert steps(5, 50) == [
        {"setCanaryScale": {"weight": 100}},
        {"pause": {}},
        {"setWeight": 5},
        {"pause": {}},
        {"setWeight": 50},
        {"pause": {}},
    ]


def test_a_canary_of_few_engines_gets_more_before_it_gets_more_users() -> None:
    assert steps(5, 25, 50, engines=8, mirror=10) == [
        {"setCanaryScale": {"weight": 10}},
        {"pause": {}},
        {"setWeight": 5},
        {"pause": {}},
        {"setCanaryScale": {"weight": 25}},
        {"setWeight": 25},
        {"pause": {}},
        {"setCanaryScale": {"weight": 50}},
        {"setWeight": 50},
        {"pause": {}},
    ]


@pytest.mark.parametrize(
    ("mirror", "canary", "first"),
    [
        (100, {}, {"weight": 100}),
        (0, {}, {"replicas": 1}),
        (0, {"min_replicas": 2}, {"replicas": 2}),
        (100, {"replicas": 3}, {"replicas": 3}),
    ],
)
def test_how_many_engines_a_canary_begins_with(mirror: int, canary: dict[str, int], first: Json) -> None:
    assert steps(5, mirror=mirror, **canary)[0] == {"setCanaryScale": first}
