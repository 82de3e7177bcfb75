"""The pure parts of a fleet on Kubernetes: steps, arrivals, revisions, dying pods, patience."""

from __future__ import annotations

import math

import pytest

from rollouts.argo.model import Rollout, entry_step, path_to_weight
from rollouts.cluster.traffic_verification import Verification, counted_between, verify_mirror, verify_share
from rollouts.errors import (
    EngineDidNotStart,
    FleetError,
    Forbidden,
    Invalid,
    NotFound,
    NotPossible,
    Unreachable,
)
from rollouts.kube.objects import pod_problems, start_failure
from rollouts.kube.retry import RetryPolicy, is_transient, time_left
from tidegate.core.model import Json
from tidegate.testing import FakeClock

PAUSE: Json = {"pause": {}}
STEPS: list[Json] = [
    {"setCanaryScale": {"replicas": 1}},
    PAUSE,
    {"setWeight": 5},
    PAUSE,
    {"setCanaryScale": {"weight": 50}},
    {"setWeight": 50},
    {"pause": {"duration": "10m"}},
    PAUSE,
]


def at(index: int, *, paused: bool = True) -> Rollout:
    conditions = [{"reason": "CanaryPauseStep"}] if paused else []
    return Rollout(
        {
            "metadata": {"name": "support-llm"},
            "spec": {"strategy": {"canary": {"steps": STEPS}}},
            "status": {"currentStepIndex": index, "pauseConditions": conditions},
        }
    )


class TestHolds:
    @pytest.mark.parametrize(
        ("index", "paused", "weight", "way"),
        [
            pytest.param(1, True, 5, [(5, 2)], id="up to the next"),
            pytest.param(1, True, 50, [(5, 2), (50, 4)], id="up past one"),
            pytest.param(7, True, 5, [(5, 2)], id="down, users before engines"),
            pytest.param(7, True, 0, [(0, 0)], id="down to none"),
            pytest.param(3, True, 5, [], id="there already"),
            pytest.param(3, False, 5, [(5, 3)], id="there, and the controller has not come to rest"),
            pytest.param(5, False, 50, [(50, 5)], id="on its way there"),
        ],
    )
    def test_ways(self, index: int, paused: bool, weight: int, way: list[tuple[int, int]]) -> None:
        rollout = at(index, paused=paused)
        assert [(hold.weight, entry_step(rollout, hold)) for hold in path_to_weight(rollout, weight)[:1]] == way[:1]
        assert [hold.weight for hold in path_to_weight(rollout, weight)] == [each for each, _ in way]


class TestArrivals:
    @pytest.mark.parametrize(
        ("weight", "canary", "stable", "proof"),
        [
            (5, 0, 20, Verification.UNDECIDED),
            (5, 5, 95, Verification.CONFIRMED),
            (5, 50, 50, Verification.CONTRADICTED),
            (5, 0, 400, Verification.CONTRADICTED),
            (5, 0, 60, Verification.UNDECIDED),
            (25, 30, 70, Verification.CONFIRMED),
            (25, 0, 100, Verification.CONTRADICTED),
            (50, 44, 56, Verification.CONFIRMED),
            (50, 300, 0, Verification.CONTRADICTED),
            (99, 0, 100, Verification.CONTRADICTED),
        ],
    )
    def test_a_share_contradicts_a_weight_only_when_chance_cannot(
        self, weight: int, canary: float, stable: float, proof: Verification
    ) -> None:
        assert verify_share(weight, stable, canary) is proof

    @pytest.mark.parametrize(
        ("percent", "copies", "stable", "proof"),
        [
            (100, 1, 1, Verification.CONFIRMED),
            (100, 0, 19, Verification.UNDECIDED),
            (100, 0, 20, Verification.CONTRADICTED),
            (5, 0, 300, Verification.UNDECIDED),
        ],
    )
    def test_one_copy_proves_a_mirror(self, percent: int, copies: float, stable: float, proof: Verification) -> None:
        assert verify_mirror(percent, stable, copies) is proof

    def test_an_engine_that_is_new_or_began_again_counts_from_zero(self) -> None:
        assert counted_between({"a": 10, "b": 50}, {"a": 15, "b": 3, "c": 4}) == 5 + 3 + 4


def pod(**container: object) -> Json:
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "engine", **container}]}}


class TestPods:
    def test_without_last_words_the_exit_code_is(self) -> None:
        died = pod(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
        assert pod_problems([died]) == "p: OOMKilled, exit code 137"
        assert start_failure([died]) == ""

    def test_a_container_that_is_being_made_is_no_problem(self) -> None:
        assert pod_problems([pod(state={"waiting": {"reason": "ContainerCreating"}})]) == ""

    def test_a_pod_without_a_node_waits_for_one(self) -> None:
        waiting: Json = {
            "metadata": {"name": "p"},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]},
        }
        assert (pod_problems([waiting]), start_failure([waiting])) == ("no node for p: 0/3 nodes", "")


class Silent:
    """An operation that fails until a time."""

    def __init__(self, clock: FakeClock, error: FleetError, *, until: float, lasting: float = 0.0) -> None:
        self._clock, self._error, self._until, self._lasting = clock, error, until, lasting
        self.said = 0

    async def __call__(self) -> str:
        self.said += 1
        self._clock.elapsed += self._lasting
        if self._clock.elapsed < self._until:
            raise self._error
        return "done"


class TestPatience:
    @pytest.mark.parametrize(
        "error",
        [
            NotPossible("no canary"),
            EngineDidNotStart("it died"),
            Forbidden("rbac", status=403),
            NotFound("gone", status=404),
            Invalid("wrong", status=500),
        ],
    )
    async def test_what_does_not_pass_is_said_once(self, error: FleetError) -> None:
        clock = FakeClock()
        operation = Silent(clock, error, until=50)
        with pytest.raises(type(error)):
            await RetryPolicy(clock, seconds=60).run(operation)
        assert (operation.said, is_transient(error)) == (1, False)

    async def test_a_region_that_answered_for_long_is_silent_again(self) -> None:
        clock = FakeClock()
        operation = Silent(clock, Unreachable("away"), until=500, lasting=100)
        assert await RetryPolicy(clock, seconds=60).run(operation) == "done"

    async def test_an_operation_ends_by_its_deadline_however_often_the_region_answers(self) -> None:
        clock = FakeClock()
        operation = Silent(clock, Unreachable("away"), until=10_000, lasting=100)
        with pytest.raises(Unreachable):
            await RetryPolicy(clock, seconds=60, within=1000).run(operation)
        assert 1000 <= clock.elapsed <= 1000 + 100

    async def test_the_deadline_holds_for_what_is_retried_below(self) -> None:
        clock = FakeClock()
        below = Silent(clock, Unreachable("away"), until=10_000)
        with pytest.raises(Unreachable):
            await RetryPolicy(clock, seconds=60, within=7).run(lambda: RetryPolicy(clock, seconds=600).run(below))
        assert clock.elapsed == 7
        assert time_left() == math.inf
