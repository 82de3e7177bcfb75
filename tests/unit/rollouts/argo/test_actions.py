"""What each action makes of a Rollout, and that it is done once, whatever happens on the way to the API server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest
from fakes.clusters.region import NAME, ClusterRegion, on_trial
from fakes.kube.refusal import Refusal
from fakes.kube.requests import WRITES, Fault, LoseAnswer, LoseRequest, Meanwhile, Refuse

from rollouts.argo.actions import RolloutClient
from rollouts.errors import Forbidden, NotConfirmed, NotFound, NotPossible, Unreachable
from rollouts.kube.resources import ROLLOUTS


@pytest.fixture(params=[0.0, math.inf], ids=["hears", "loses"])
async def region(request: pytest.FixtureRequest) -> ClusterRegion:
    """Version 2 is on trial without users; the controller hears every write, or loses each first one after its own."""
    region = ClusterRegion()
    await on_trial(region)
    region.simulation.loses_writes_within = request.param
    return region


@pytest.fixture
def rollouts(region: ClusterRegion) -> RolloutClient:
    return open_rollout(region)


@pytest.fixture
def somebody_else(region: ClusterRegion) -> RolloutClient:
    return open_rollout(region)


def open_rollout(region: ClusterRegion, name: str = NAME) -> RolloutClient:
    return RolloutClient(name, region.client(), region.time, allows=lambda _: None)


def trial(region: ClusterRegion) -> str:
    return str(region.rollout["status"]["currentPodHash"])


Seen = tuple[int, int, str]
"""Step, weight and phase."""


def seen(region: ClusterRegion) -> Seen:
    status = region.rollout["status"]
    return status["currentStepIndex"], region.weight_of(region.route), status["phase"]


async def rest(region: ClusterRegion) -> Seen:
    await region.time.sleep(60)
    return seen(region)


def hold(region: ClusterRegion) -> None:
    region.edit_rollout(lambda body: body["spec"].update(paused=True))


async def test_two_who_move_it_at_once_move_it_by_one_pause(
    region: ClusterRegion, rollouts: RolloutClient, somebody_else: RolloutClient
) -> None:
    await asyncio.gather(*(each.to_step(2, trial(region)) for each in (rollouts, somebody_else)))
    assert seen(region) == (3, 5, "Paused")


async def test_no_matter_who_thinks_it_is_elsewhere_changes_nothing(
    region: ClusterRegion, rollouts: RolloutClient
) -> None:
    with pytest.raises(NotPossible, match="0a0a was meant"):
        await rollouts.abort("0a0a")
    assert seen(region) == (1, 0, "Paused")


async def test_resume_leaves_the_pause_of_a_step(region: ClusterRegion, rollouts: RolloutClient) -> None:
    hold(region)
    for _ in range(2):
        await rollouts.resume()
        assert seen(region) == (1, 0, "Paused")


async def test_the_weight_goes_up_and_down_by_its_steps_and_each_pause_holds(
    region: ClusterRegion, rollouts: RolloutClient
) -> None:
    for step, there in ((6, (7, 50, "Paused")), (2, (3, 5, "Paused")), (3, (3, 5, "Paused")), (0, (1, 0, "Paused"))):
        await rollouts.to_step(step, trial(region))
        assert await rest(region) == there


async def test_promoted_in_full_it_is_stable_once_its_pods_are_up(
    region: ClusterRegion, rollouts: RolloutClient
) -> None:
    for _ in range(2):
        await rollouts.promote_full(trial(region))
        assert region.rollout["status"]["currentStepIndex"] == 8
        assert (await rest(region), region.versions()) == ((8, 0, "Healthy"), ("2", "2"))


async def test_abort_brings_all_users_back(region: ClusterRegion, rollouts: RolloutClient) -> None:
    await rollouts.to_step(2, trial(region))
    for _ in range(2):
        await rollouts.abort(trial(region))
        assert seen(region) == (0, 0, "Degraded")


async def test_a_rollout_that_is_not_there(region: ClusterRegion) -> None:
    with pytest.raises(NotFound):
        await open_rollout(region, "nobody").abort(trial(region))


async def test_a_controller_that_does_not_react_is_told_with_its_likely_cause(
    region: ClusterRegion, rollouts: RolloutClient
) -> None:
    region.simulation.plugin_broken = True
    with pytest.raises(NotConfirmed, match="traffic plugin argoproj-labs/gatewayAPI does not load or fails") as failed:
        await rollouts.abort(trial(region))
    assert failed.value.message == f"{NAME}: sent, and nothing came of it in 30 s"


async def test_no_matter_who_moves_it_hears_that_it_was_aborted_meanwhile(
    region: ClusterRegion, rollouts: RolloutClient, somebody_else: RolloutClient
) -> None:
    region.simulation.controller_down = True
    promoting = asyncio.create_task(rollouts.to_step(2, trial(region)))
    await region.time.sleep(5)
    aborting = asyncio.create_task(somebody_else.abort(trial(region)))
    await region.time.sleep(5)
    region.simulation.controller_down = False
    with pytest.raises(NotPossible, match="aborted meanwhile"):
        await promoting
    await aborting
    assert seen(region) == (0, 0, "Degraded")


FAULTS: dict[str, Callable[[ClusterRegion], None]] = {
    "conflict on every write": lambda region: region.api.faults.conflict_on_every_write(),
    "somebody writes in between": lambda region: region.api.faults.add(
        Fault(Meanwhile(lambda _: _annotate(region)), verbs=WRITES, plural="rollouts")
    ),
    "request lost": lambda region: region.api.faults.add(Fault(LoseRequest(), verbs=WRITES)),
    "answer lost": lambda region: region.api.faults.add(Fault(LoseAnswer(), verbs=WRITES)),
    "three answers lost": lambda region: region.api.faults.add(Fault(LoseAnswer(), times=3)),
    "busy": lambda region: region.api.faults.busy(retry_after=2),
    "failing": lambda region: region.api.faults.failing(code=503, times=2),
    "failing to write": lambda region: region.api.faults.failing(code=500, verbs=WRITES, times=2),
}
ACTIONS: dict[str, tuple[Callable[[RolloutClient, str], Awaitable[object]], Seen]] = {
    "promote in full": (lambda rollouts, trial: rollouts.promote_full(trial), (8, 0, "Healthy")),
    "to step": (lambda rollouts, trial: rollouts.to_step(5, trial), (5, 25, "Paused")),
    "abort": (lambda rollouts, trial: rollouts.abort(trial), (0, 0, "Degraded")),
    "resume": (lambda rollouts, _: rollouts.resume(), (1, 0, "Paused")),
}
"""And where each ends."""


def _annotate(region: ClusterRegion) -> None:
    region.cluster.patch(ROLLOUTS, NAME, {"metadata": {"annotations": {"somebody": "was here"}}})


@pytest.mark.parametrize(("action", "fault"), [*zip([*ACTIONS, *ACTIONS], FAULTS, strict=True)])
@pytest.mark.parametrize("region", [0.0], indirect=True)
async def test_the_end_is_right(action: str, fault: str, region: ClusterRegion, rollouts: RolloutClient) -> None:
    if action == "resume":
        hold(region)
    act, end = ACTIONS[action]
    on_trial_now = trial(region)
    FAULTS[fault](region)
    await act(rollouts, on_trial_now)
    assert await rest(region) == end


@pytest.mark.parametrize("region", [0.0], indirect=True)
async def test_what_is_forbidden_is_not_repeated_and_a_region_that_is_gone_is_told(
    region: ClusterRegion, rollouts: RolloutClient
) -> None:
    before = region.rollout
    region.api.faults.add(Fault(Refuse(Refusal(403, "Forbidden", "no")), verbs=WRITES, times=None))
    with pytest.raises(Forbidden):
        await rollouts.abort(trial(region))
    region.api.vanish()
    with pytest.raises(Unreachable):
        await rollouts.abort(trial(region))
    assert region.rollout == before
    region.api.faults.clear()
    await rollouts.abort(trial(region))
    assert seen(region) == (0, 0, "Degraded")
