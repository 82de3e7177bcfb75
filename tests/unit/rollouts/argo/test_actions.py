"""What each action makes of a Rollout, and that it is done once, whatever happens on the way to the API server."""

from __future__ import annotations

import asyncio
import math

import pytest
from fakes.clusters.region import NAME, ClusterRegion, on_trial
from fakes.kube.refusal import Refusal
from fakes.kube.requests import WRITES, Fault, Refuse

from rollouts.argo.actions import RolloutClient
from rollouts.errors import Forbidden, NotConfirmed, NotPossible, Unreachable


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
