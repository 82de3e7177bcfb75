"""What is shown of a rollout: the summary, the tree, icons and ages."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta

import pytest
from fakes.argo.scene import NAME, Scene, blue_green, canary

from rollouts.adapters.kube.client import KubeClient
from rollouts.argo.state import health_of
from rollouts.argo.view import (
    OwnedResources,
    RolloutView,
    TreeNode,
    pod_icon,
    read_owned_resources,
    rollout_view,
    short_age,
)
from rollouts.argo.watch import rollout_views
from tidegate.core.model import Json

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (4 * 3600 - 1, "3h59m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (51 * 3600, "2d3h"),
        (7 * 86400, "7d"),
        (8 * 86400 + 3600, "8d"),
        (2 * 365 * 86400 - 1, "729d"),
        (2 * 365 * 86400, "2y"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_ages_are_as_short_as_those_of_kubectl(seconds: int, text: str) -> None:
    assert short_age(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("status", "mark"),
    [
        ("Running", "✔"),
        ("Init:0/1", "◌"),
        ("ExitCode:1", "✖"),
        ("CrashLoopBackOff", "✖"),
        ("ImagePullBackOff", "⚠"),
        ("ErrImagePull", "⚠"),
        ("RunContainerError", "⚠"),
        ("Terminating", "◌"),
        ("SomethingNew", " "),
    ],
)
def test_pods_have_the_marks_that_users_of_kubectl_know(status: str, mark: str) -> None:
    assert pod_icon(status) == mark


async def pictured(client: KubeClient, scene: Scene) -> RolloutView:
    now = scene.cluster.time.now()
    family = await read_owned_resources(client, NAME)
    return rollout_view(family, health_of(family.rollout, now=now), now=now)


def told(node: TreeNode, depth: int = 0) -> list[str]:
    """Every node with its status and info, indented; pods without their names, which are random."""
    name = "" if node.kind == "Pod" else f" {node.name}"
    line = f"{'  ' * depth}{node.kind}{name} {node.mark} {node.status} {','.join(node.info)}"
    return [line.rstrip(), *(each for child in node.children for each in told(child, depth + 1))]


async def test_a_trial_with_its_revisions(client: KubeClient, scene: Scene) -> None:
    scene.simulation.image_pull_fails("2")
    scene.deploy("2")
    scene.wait(30)
    picture = await pictured(client, scene)
    stable, new = scene.status["stableRS"], scene.status["currentPodHash"]
    assert told(picture.tree) == [
        "Rollout llm ◌ progressing",
        "  Revision revision:2",
        f"    ReplicaSet llm-{new} ◌ Progressing canary",
        "      Pod ⚠ ImagePullBackOff ready:0/1",
        "  Revision revision:1",
        f"    ReplicaSet llm-{stable} ✔ Healthy stable",
        *["      Pod ✔ Running ready:1/1"] * 4,
    ]
    assert [(image.image, image.roles) for image in picture.images] == [
        ("registry.example/engine:1", ("stable",)),
        ("registry.example/engine:2", ("canary",)),
    ]
    assert (picture.step, picture.steps, picture.running_step) == (0, 7, "setCanaryScale{replicas: 1}")


async def test_weights_are_those_of_the_router(client: KubeClient, scene: Scene) -> None:
    scene.deploy("2")
    scene.wait(30)
    scene.resume()
    picture = await pictured(client, scene)
    assert (picture.set_weight, picture.actual_weight) == (5, 5)
    scene.wait(30)
    scene.abort()
    picture = await pictured(client, scene)
    assert (picture.set_weight, picture.actual_weight) == (0, 0)


async def test_old_pods_tell_how_long_they_stay(client: KubeClient, scene: Scene) -> None:
    scene.deploy("2")
    scene.wait(30)
    scene.promote_full()
    scene.wait(21)
    lines = told((await pictured(client, scene)).tree)
    assert any("stable" in line for line in lines)
    (old,) = [line for line in lines if "delay:" in line]
    assert "delay:" in old and old.strip().startswith("ReplicaSet")


async def test_others_in_the_namespace_do_not_belong_to_it(client: KubeClient, scene: Scene) -> None:
    family = await read_owned_resources(client, NAME)
    foreign_objects = [
        {**each, "metadata": {**each["metadata"], "name": "other", "ownerReferences": [{"uid": "another"}]}}
        for each in family.replica_sets
    ]
    crowded = OwnedResources(**{**dict(family), "replica_sets": (*family.replica_sets, *foreign_objects)})
    now = scene.cluster.time.now()
    health = health_of(family.rollout, now=now)
    assert rollout_view(crowded, health, now=now).tree == rollout_view(family, health, now=now).tree


def analysis_run(uid: str, phase: str, **counts: int) -> Json:
    result = {"name": "burn-rate", "phase": phase, **counts}
    measured = {"phase": "Successful", "metadata": {"job-name": "measure-1"}, "startedAt": "2026-01-01T00:00:05Z"}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AnalysisRun",
        "metadata": {
            "name": "llm-burn-rate",
            "annotations": {"rollout.argoproj.io/revision": "1"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": uid}],
        },
        "status": {"phase": phase, "metricResults": [{**result, "measurements": [measured]}]},
    }


async def test_an_analysis_run_counts_its_measurements(client: KubeClient, scene: Scene) -> None:
    family = await read_owned_resources(client, NAME)
    run = analysis_run(
        family.rollout["metadata"]["uid"], "Inconclusive", successful=4, failed=4, inconclusive=1, error=1
    )
    family = family.model_copy(update={"analysis_runs": (run,)})
    now = scene.cluster.time.now()
    lines = told(rollout_view(family, health_of(family.rollout, now=now), now=now).tree)
    assert lines[-2:] == [
        "    AnalysisRun llm-burn-rate ? Inconclusive ✔ 4,✖ 4,? 1,⚠ 1",
        "      Job measure-1 ✔ Successful",
    ]


async def test_an_experiment_has_replica_sets_of_its_own(client: KubeClient, scene: Scene) -> None:
    family = await read_owned_resources(client, NAME)
    (owned,) = family.replica_sets
    experiment = analysis_run(family.rollout["metadata"]["uid"], "Running") | {"kind": "Experiment"}
    experiment = {**experiment, "metadata": {**experiment["metadata"], "uid": "experiment", "name": "llm-baseline"}}
    its = {
        **owned,
        "metadata": {**owned["metadata"], "name": "llm-baseline-1", "ownerReferences": [{"uid": "experiment"}]},
    }
    family = family.model_copy(update={"experiments": (experiment,), "replica_sets": (owned, its)})
    now = scene.cluster.time.now()
    lines = told(rollout_view(family, health_of(family.rollout, now=now), now=now).tree)
    assert "    Experiment llm-baseline ◌ Running" in lines
    assert "      ReplicaSet llm-baseline-1 ✔ Healthy" in lines


class TestWithoutRouter:
    @pytest.fixture
    def scene(self) -> Scene:
        return Scene(canary(trafficRouting=None, steps=[{"setWeight": 20}, {"pause": {}}]))

    async def test_weights_are_pods(self, client: KubeClient, scene: Scene) -> None:
        scene.deploy("2")
        scene.wait(60)
        picture = await pictured(client, scene)
        pods = scene.pods
        assert (picture.set_weight, picture.actual_weight) == (20, pods["2"] * 100 // sum(pods.values()))


class TestBlueGreen:
    @pytest.fixture
    def scene(self) -> Scene:
        return Scene(blue_green(autoPromotionEnabled=False))

    async def test_roles_are_those_of_its_services(self, client: KubeClient, scene: Scene) -> None:
        scene.deploy("2")
        scene.wait(30)
        picture = await pictured(client, scene)
        lines = [line for line in told(picture.tree) if "ReplicaSet" in line]
        assert [line.split()[-1] for line in lines] == ["preview", "stable,active"]
        assert (picture.strategy, picture.step, picture.set_weight) == ("blue-green", None, None)


async def test_a_picture_comes_with_each_change(client: KubeClient, scene: Scene) -> None:
    seen = []

    async def watch() -> None:
        async with aclosing(rollout_views(client, scene.cluster.time, NAME)) as stream:
            async for picture in stream:
                seen.append(picture)

    watching = asyncio.create_task(watch())
    await scene.cluster.time.sleep(5)
    scene.deploy("2")
    await scene.cluster.time.sleep(40)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    states = [str(picture.health.state) for picture in seen]
    assert list(dict.fromkeys(states)) == ["healthy", "progressing", "paused"]
    assert len(seen[-1].tree.children) == 2
    assert seen[-1].current == 5
