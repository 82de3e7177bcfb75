"""How many pods each version gets: the tables of `utils/replicaset/canary_test.go`, and those of the documentation."""

from __future__ import annotations

import pytest
from fakes.argo.counts import basic_counts, current_set_weight, needed, routed_counts
from fakes.argo.objects import ReplicaSet, Rollout, count_of

from rollouts.kube.model import Json

TRAFFIC: Json = {"trafficRouting": {"plugins": {}}}


def rollout(replicas: int, steps: list[Json], status: Json | None = None, **canary: object) -> Rollout:
    state = {"stableRS": "old", "currentPodHash": "new", "currentStepIndex": 0} | (status or {})
    return Rollout(
        {"spec": {"replicas": replicas, "strategy": {"canary": {"steps": steps, **canary}}}, "status": state}
    )


def replica_set(name: str, replicas: int, available: int | None = None) -> ReplicaSet:
    status = {"availableReplicas": replicas if available is None else available}
    return ReplicaSet({"metadata": {"name": name}, "spec": {"replicas": replicas}, "status": status})


@pytest.mark.parametrize(
    ("replicas", "weight", "limits", "expected"),
    [
        (10, 10, (1, 1), (1, 9)),
        (10, 30, (3, 0), (3, 10)),
        (10, 30, (0, 5), (0, 7)),
        (10, 5, (1, 1), (1, 10)),  # 1 of 11 is nearer to 5 % than 1 of 10; the comment is older than that rule
        (1, 5, (1, 0), (1, 1)),
        (1, 95, (1, 0), (1, 1)),
    ],
)
def test_a_basic_canary_goes_towards_its_weight_within_its_limits(
    replicas: int, weight: int, limits: tuple[int, int], expected: tuple[int, int]
) -> None:
    """The examples in the comment above `CalculateReplicaCountsForBasicCanary`, from a whole stable."""
    subject = rollout(replicas, [{"setWeight": weight}], maxSurge=limits[0], maxUnavailable=limits[1])
    assert basic_counts(subject, replica_set("new", 0), replica_set("old", replicas), []) == expected


@pytest.mark.parametrize(("weight", "canary"), [(0, 0), (1, 1), (5, 1), (10, 1), (11, 2), (50, 5), (99, 10), (100, 10)])
def test_behind_a_router_the_canary_is_rounded_up_and_the_stable_stays_whole(weight: int, canary: int) -> None:
    assert routed_counts(rollout(10, [{"setWeight": weight}], **TRAFFIC), None) == (canary, 10)


@pytest.mark.parametrize(("weight", "counts"), [(0, (0, 10)), (25, (3, 8)), (100, (10, 0))])
def test_a_dynamic_stable_is_the_rest(weight: int, counts: tuple[int, int]) -> None:
    subject = rollout(10, [{"setWeight": weight}], dynamicStableScale=True, **TRAFFIC)
    assert routed_counts(subject, None) == counts


def test_a_dynamic_stable_keeps_what_its_users_still_need() -> None:
    subject = rollout(10, [{"setWeight": 100}], dynamicStableScale=True, **TRAFFIC)
    weights = {"canary": {"weight": 50}, "stable": {"weight": 50}}
    assert routed_counts(subject, weights) == (10, 5)


@pytest.mark.parametrize(
    ("scale", "index", "canary"),
    [
        ({"replicas": 3}, 0, 3),
        ({"weight": 50}, 0, 5),
        ({"matchTrafficWeight": True}, 0, 0),
        ({"replicas": 3}, 1, 3),
        ({"replicas": 0}, 1, 0),
    ],
)
def test_a_named_scale_holds_until_another_one(scale: Json, index: int, canary: int) -> None:
    steps = [{"setCanaryScale": scale}, {"setWeight": 20}]
    subject = rollout(10, steps, {"currentStepIndex": index}, **TRAFFIC)
    assert routed_counts(subject, None)[0] == canary


def test_an_abort_ends_a_named_scale_unless_the_canary_is_to_stay() -> None:
    steps: list[Json] = [{"setCanaryScale": {"replicas": 3}}, {"setWeight": 20}]
    aborted = {"abort": True, "currentStepIndex": 0}
    assert routed_counts(rollout(10, steps, aborted, **TRAFFIC), None)[0] == 0
    assert routed_counts(rollout(10, steps, aborted, abortScaleDownDelaySeconds=0, **TRAFFIC), None)[0] == 3


def test_a_replica_set_with_pods_has_at_least_so_many() -> None:
    subject = rollout(10, [{"setWeight": 5}], minPodsPerReplicaSet=2, **TRAFFIC)
    assert routed_counts(subject, None) == (2, 10)
    assert routed_counts(rollout(10, [{"setWeight": 0}], minPodsPerReplicaSet=2, **TRAFFIC), None) == (0, 10)


@pytest.mark.parametrize(("index", "weight"), [(0, 0), (1, 20), (2, 20), (3, 60), (4, 100)])
def test_the_weight_is_that_of_the_last_step_that_set_one(index: int, weight: int) -> None:
    steps: list[Json] = [{"pause": {}}, {"setWeight": 20}, {"pause": {}}, {"setWeight": 60}]
    assert current_set_weight(rollout(1, steps, {"currentStepIndex": index})) == weight


@pytest.mark.parametrize(
    ("threshold", "count"), [(None, 7), ({"type": "Percent", "value": 90}, 7), ({"type": "Pods", "value": 4}, 4)]
)
def test_a_threshold_says_how_many_are_enough(threshold: Json | None, count: int) -> None:
    assert needed(rollout(7, [], **({"replicaProgressThreshold": threshold} if threshold else {})), 7) == count


@pytest.mark.parametrize(
    ("surge", "unavailable", "expected"), [(None, None, (2, 1)), ("20%", 0, (1, 0)), (0, "1%", (0, 1)), (9, 9, (9, 5))]
)
def test_limits_are_numbers_or_shares(surge: object, unavailable: object, expected: tuple[int, int]) -> None:
    said = {"maxSurge": surge, "maxUnavailable": unavailable}
    fields = {key: value for key, value in said.items() if value is not None}
    assert rollout(5, [], **fields).surge_and_unavailable == expected
    assert count_of("25%", 5, round_up=True) == 2
