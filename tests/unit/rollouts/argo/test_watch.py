"""When waiting for a rollout ends, and why."""

from __future__ import annotations

import asyncio

import pytest
from fakes.argo.scene import NAME, STEPS, Scene, canary
from fakes.kube.api import Api

from rollouts.adapters.kube.client import KubeClient
from rollouts.argo.watch import WaitOutcome, WaitResult, wait_for_rollout
from rollouts.errors import NotFound, NotPossible
from rollouts.kube.resources import ANALYSIS_TEMPLATES, ROLLOUTS

pytestmark = pytest.mark.long

ANALYSED = [STEPS[0], {"analysis": {"templates": [{"templateName": "burn-rate"}]}}, {"setWeight": 5}, {"pause": {}}]
TEMPLATE = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "AnalysisTemplate",
    "metadata": {"name": "burn-rate"},
    "spec": {"metrics": [{"name": "burn-rate", "provider": {"prometheus": {"query": "vector(1)"}}}]},
}
TIMED = [STEPS[0], {"pause": {"duration": "10m"}}, {"setWeight": 5}, {"pause": {}}]


async def waited(client: KubeClient, scene: Scene, seconds: float = 3600) -> WaitResult:
    return await wait_for_rollout(client, scene.cluster.time, NAME, within_seconds=seconds)


async def test_a_healthy_one_is_not_waited_for(client: KubeClient, scene: Scene) -> None:
    settled = await waited(client, scene)
    assert (settled.outcome, settled.waited_seconds) == (WaitOutcome.HEALTHY, 0)


async def test_a_pause_that_needs_somebody_ends_it(client: KubeClient, scene: Scene) -> None:
    scene.deploy("2")
    settled = await waited(client, scene)
    assert (settled.outcome, settled.health.cause) == (WaitOutcome.PAUSED, "step 2 of 7: pause")
    assert 15 < settled.waited_seconds < 30


async def test_an_abort_ends_it(client: KubeClient, scene: Scene) -> None:
    scene.deploy("2")
    scene.wait(30)
    scene.abort()
    settled = await waited(client, scene)
    assert (settled.outcome, settled.health.cause) == (WaitOutcome.DEGRADED, "somebody aborted it")


async def test_pods_that_never_come_up_end_it_at_their_deadline(client: KubeClient, scene: Scene) -> None:
    scene.simulation.image_pull_fails("2")
    scene.deploy("2")
    settled = await waited(client, scene)
    assert settled.outcome is WaitOutcome.DEGRADED
    assert "4 pods available, 1 of 4 updated" in settled.health.cause
    assert 590 < settled.waited_seconds < 700


async def test_time_ends_it(client: KubeClient, scene: Scene) -> None:
    scene.simulation.image_pull_fails("2")
    scene.deploy("2")
    settled = await waited(client, scene, seconds=120)
    assert (settled.outcome, settled.health.state) == (WaitOutcome.TIMEOUT, "progressing")
    assert 120 <= settled.waited_seconds < 122


async def test_nobody_waits_with_no_time(client: KubeClient, scene: Scene) -> None:
    scene.deploy("2")
    assert (await waited(client, scene, seconds=0)).outcome is WaitOutcome.PROGRESSING


async def test_a_plugin_that_does_not_load_is_told_within_a_minute(client: KubeClient, scene: Scene) -> None:
    scene.simulation.plugin_broken = True
    scene.deploy("2")
    settled = await waited(client, scene)
    assert settled.outcome is WaitOutcome.STUCK
    assert "traffic plugin argoproj-labs/gatewayAPI" in settled.health.cause
    assert settled.waited_seconds < 65


async def test_a_controller_that_is_down_is_told_within_a_minute(client: KubeClient, scene: Scene) -> None:
    scene.simulation.controller_down = True
    scene.deploy("2")
    settled = await waited(client, scene)
    assert (settled.outcome, settled.waited_seconds < 65) == (WaitOutcome.STUCK, True)


async def test_a_controller_that_comes_back_in_time_is_not_stuck(client: KubeClient, scene: Scene) -> None:
    scene.simulation.controller_down = True
    scene.deploy("2")
    waiting = asyncio.create_task(waited(client, scene))
    await scene.cluster.time.sleep(45)
    scene.simulation.controller_down = False
    assert (await waiting).outcome is WaitOutcome.PAUSED


async def test_it_outlives_cut_watches_and_a_region_that_is_away(client: KubeClient, scene: Scene, api: Api) -> None:
    scene.deploy("2")
    api.faults.cut_every_watch(after=2, times=5)
    waiting = asyncio.create_task(waited(client, scene))
    await scene.cluster.time.sleep(5)
    api.vanish()
    await scene.cluster.time.sleep(300)
    api.come_back()
    assert (await waiting).outcome is WaitOutcome.PAUSED


async def test_one_that_is_not_there(client: KubeClient, scene: Scene) -> None:
    with pytest.raises(NotFound):
        await wait_for_rollout(client, scene.cluster.time, "nobody", within_seconds=60)


async def test_one_that_is_deleted_meanwhile(client: KubeClient, scene: Scene) -> None:
    scene.deploy("2")
    waiting = asyncio.create_task(waited(client, scene))
    await scene.cluster.time.sleep(5)
    scene.cluster.delete(ROLLOUTS, NAME)
    with pytest.raises(NotPossible, match="llm was deleted"):
        await waiting


class TestTimedPause:
    @pytest.fixture
    def scene(self) -> Scene:
        return Scene(canary(steps=TIMED))

    async def test_it_is_waited_for(self, client: KubeClient, scene: Scene) -> None:
        scene.deploy("2")
        settled = await waited(client, scene)
        assert (settled.outcome, settled.health.cause) == (WaitOutcome.PAUSED, "step 4 of 4: pause")
        assert settled.waited_seconds > 600


class TestAnalysis:
    @pytest.fixture
    def scene(self) -> Scene:
        scene = Scene(canary(steps=ANALYSED), ready=False)
        scene.cluster.create(ANALYSIS_TEMPLATES, TEMPLATE)
        scene.wait(30)
        return scene

    async def test_one_that_cannot_decide_is_an_ending_of_its_own(self, client: KubeClient, scene: Scene) -> None:
        scene.deploy("2")
        scene.simulation.analysis("Inconclusive", "too few requests")
        settled = await waited(client, scene)
        assert settled.outcome is WaitOutcome.INCONCLUSIVE
        assert "too few requests" in settled.health.cause

    async def test_one_that_failed_tells_its_message(self, client: KubeClient, scene: Scene) -> None:
        scene.deploy("2")
        scene.simulation.analysis("Failed", "burn rate 14.4")
        settled = await waited(client, scene)
        assert settled.outcome is WaitOutcome.DEGRADED
        assert "burn rate 14.4" in settled.health.cause
