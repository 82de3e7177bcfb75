"""The simulation itself: it comes to rest, is the same every time, and lives in both kinds of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fakes.argo.scene import NAME, Scene, blue_green, canary, http_route, rollout, service
from fakes.argo.simulation import Simulation
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.simulated_time import RealTime
from fakes.kube.transport import FakeTransport
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rollouts.adapters.kube.access import Access
from rollouts.adapters.kube.client import KubeClient
from rollouts.argo.phase import phase_of
from rollouts.kube.model import Json
from rollouts.kube.resources import HTTP_ROUTES, ROLLOUTS, SERVICES


def furnish(cluster: FakeCluster) -> None:
    for name in (f"{NAME}-stable", f"{NAME}-canary"):
        cluster.create(SERVICES, service(name))
    cluster.create(HTTP_ROUTES, http_route())


def a_day() -> list[Json]:
    scene = Scene(canary(scaleDownDelaySeconds=3600), rollbackWindow={"revisions": 3})
    for version in ("2", "3", "2"):
        scene.deploy(version)
        scene.wait(3600)
        scene.promote_full()
        scene.wait(3600)
    return [body for kind in scene.cluster.kinds for body in scene.cluster.store.all(kind)]


def test_the_same_day_ends_in_the_same_cluster() -> None:
    assert a_day() == a_day()


def test_it_finds_what_was_there_before_it() -> None:
    cluster = FakeCluster()
    furnish(cluster)
    cluster.create(ROLLOUTS, rollout(canary()))
    simulation = Simulation(cluster)
    simulation.settle()
    cluster.time.advance(30)  # type: ignore[attr-defined]
    assert cluster.get(ROLLOUTS, NAME)["status"]["phase"] == "Healthy"


def test_at_rest_nothing_is_written() -> None:
    scene = Scene()
    version = scene.cluster.store.version
    scene.wait(86_400)
    assert scene.cluster.store.version == version


def test_what_is_closed_reacts_no_more() -> None:
    scene = Scene()
    scene.simulation.close()
    scene.cluster.edit(ROLLOUTS, NAME, lambda body: body["spec"].update(replicas=2))
    scene.cluster.time.advance(60)  # type: ignore[attr-defined]
    assert scene.cluster.get(ROLLOUTS, NAME)["status"]["replicas"] == 4


async def test_it_reacts_while_a_client_waits() -> None:
    cluster = FakeCluster()
    simulation = Simulation(cluster)
    furnish(cluster)
    time = cluster.time
    client = KubeClient(
        Access.fixed("https://eu-west-1.test", clock=time),
        namespace="default",
        clock=time,
        transport=FakeTransport(Api(cluster)),
    )
    await client.create(ROLLOUTS, rollout(canary()))
    phases = []
    async with asyncio.timeout(20):
        async for change in client.watch(ROLLOUTS, fields=f"metadata.name={NAME}"):
            phases.append(change.object.get("status", {}).get("phase"))
            if phases[-1] == "Healthy":
                break
    assert phases.index("Progressing") < phases.index("Healthy")
    assert time.monotonic() == pytest.approx(20, abs=1)
    await client.close()
    simulation.close()


async def test_in_real_time_it_runs_as_a_task() -> None:
    cluster = FakeCluster(time=RealTime())
    simulation = Simulation(cluster, start_seconds=0.05, reacts=False)
    running = asyncio.create_task(simulation.run(every_seconds=0.01))
    furnish(cluster)
    cluster.create(ROLLOUTS, rollout(canary()))
    async with asyncio.timeout(20):
        while cluster.get(ROLLOUTS, NAME).get("status", {}).get("phase") != "Healthy":
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_without_its_definition_a_route_is_not_found() -> None:
    scene = Scene()
    scene.cluster.uninstall(HTTP_ROUTES)
    scene.deploy("2")
    scene.wait(60)
    assert 'httproutes.gateway.networking.k8s.io "llm" not found' in scene.simulation.log[-1]


def test_a_rollout_that_is_deleted_takes_its_pods_along() -> None:
    scene = Scene()
    scene.cluster.delete(ROLLOUTS, NAME)
    scene.wait(60)
    assert scene.pods == {}


ACTIONS: dict[str, Callable[[Scene], None]] = {
    "one": lambda scene: scene.deploy("1"),
    "two": lambda scene: scene.deploy("2"),
    "three": lambda scene: scene.deploy("3"),
    "resume": lambda scene: scene.resume(),
    "skip": lambda scene: scene.say(pauseConditions=None, currentStepIndex=1),
    "abort": lambda scene: scene.abort(),
    "retry": lambda scene: scene.retry(),
    "full": lambda scene: scene.promote_full(),
    "pause": lambda scene: scene.change(paused=True),
    "go on": lambda scene: scene.change(paused=False),
    "scale": lambda scene: scene.change(replicas=7),
    "nothing": lambda scene: scene.change(replicas=0),
    "crash": lambda scene: scene.simulation.crash("2"),
    "heal": lambda scene: scene.simulation.crash("2", on=False),
    "break": lambda scene: setattr(scene.simulation, "plugin_broken", True),
    "mend": lambda scene: setattr(scene.simulation, "plugin_broken", False),
    "moment": lambda scene: scene.wait(5),
    "minutes": lambda scene: scene.wait(200),
}
STRATEGIES = {
    "routed": canary(scaleDownDelaySeconds=100),
    "dynamic": canary(dynamicStableScale=True),
    "basic": canary(trafficRouting=None, steps=[{"setWeight": 30}, {"pause": {}}, {"setWeight": 60}]),
    "blue-green": blue_green(autoPromotionSeconds=30, previewReplicaCount=1),
}


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.sampled_from(sorted(STRATEGIES)), st.lists(st.sampled_from(sorted(ACTIONS)), min_size=3, max_size=15))
def test_whatever_is_done_it_comes_to_rest(strategy: str, story: list[str]) -> None:
    scene = Scene(STRATEGIES[strategy], rollbackWindow={"revisions": 2})
    for action in story:
        ACTIONS[action](scene)
        rollout_now = scene.rollout
        assert phase_of(rollout_now).phase
        weights = rollout_now["status"].get("canary", {}).get("weights")
        assert weights is None or weights["canary"]["weight"] + weights["stable"]["weight"] == 100
    scene.simulation.crash("2", on=False)
    scene.simulation.plugin_broken = False
    scene.change(paused=False, replicas=4)
    scene.deploy("9")
    scene.wait(120)
    scene.promote_full()
    scene.wait(120)
    assert (scene.phase, scene.serves["stable"], scene.pods["9"]) == ("Healthy", "9", 4)
