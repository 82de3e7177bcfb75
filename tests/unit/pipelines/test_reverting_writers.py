"""Who writes a region back during a delivery: named, the version not blamed, users never without engines.

Each moment has one of the writers.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
from fakes.clusters.region import ClusterRegion, Endpoints, an_image
from fakes.clusters.reverting import ARGO_CD, HELM, KUBECTL, Unserved, kubectl_apply
from fakes.clusters.world import REGIONS, ClusterWorld, demo_on_clusters
from fakes.delivery.world import CHALLENGER, CHAMPION

from pipelines.model import Ending
from rollouts.kube.resources import ROLLOUTS
from rollouts.model import RegionPhase
from tidegate.core.errors import ExitCode
from tidegate.core.model import Json

REGION = REGIONS[0]
Write = Callable[[ClusterRegion], list[str]]


def _in_git(region: ClusterRegion) -> list[Json]:
    """What a team commits: the objects of the champion, as they are rendered."""
    return list(region.render(an_image(CHAMPION)))


def _kubectl(region: ClusterRegion, manager: str = KUBECTL) -> list[str]:
    return kubectl_apply(region.cluster, _in_git(region), manager=manager)


def _self_heal(region: ClusterRegion) -> list[str]:
    return _kubectl(region, ARGO_CD)


def _self_heal_server_side(region: ClusterRegion) -> list[str]:
    region.apply_over(an_image(CHAMPION), manager=ARGO_CD)
    return ["Rollout"]


def _helm(region: ClusterRegion) -> list[str]:
    """Another image in the values of a chart: of a custom resource Helm 3 sends what changed, the list whole."""
    wanted = deepcopy(_in_git(region)[-1])
    containers = wanted["spec"]["template"]["spec"]["containers"]
    containers[0]["image"] = "registry.example/chart@sha256:" + "a" * 64
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    region.cluster.patch(ROLLOUTS, wanted["metadata"]["name"], patch, manager=HELM)
    return ["Rollout"]


MOMENTS: dict[str, tuple[Write, str, str, str, float]] = {
    "engines start": (_self_heal, ARGO_CD, f"deploy@{REGION}", "started", 2.0),
    "offline": (_helm, HELM, f"offline@{REGION}", "started", 0.0),
    "users": (_self_heal_server_side, ARGO_CD, f"canary@{REGION}/50", "traffic", 0.0),
    "before it is promoted": (_kubectl, KUBECTL, f"canary@{REGION}/50", "done", 0.0),
    "promotion": (_self_heal, ARGO_CD, f"promote@{REGION}", "started", 2.0),
    "bake": (_kubectl, KUBECTL, "bake@1", "started", 1.0),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_one_who_writes_it_back_is_named(moment: str, tmp_path: Path) -> None:
    world = ClusterWorld(tmp_path, demo_on_clusters((REGION,)))
    region = world.regions[REGION]
    await region.fleet.deploy(an_image(CHAMPION))
    endpoints = Endpoints(region.cluster)
    unserved = Unserved(region.cluster, endpoints.of)
    write, manager, step, kind, later = MOMENTS[moment]
    changed: list[str] = []

    def act() -> None:
        changed.extend(write(region))

    world.when(step, kind, partial(world.time.call_later, later, act) if later else act)
    result = await world.deliver()
    assert changed, "nothing was written back"
    assert (result.ending, result.exit_code) == (Ending.INTERRUPTED, ExitCode.OUTSIDE), result.reason
    assert manager in result.reason, result.reason
    assert world.registry.marks["tidegate.outcome"] == "interrupted"
    assert world.registry.champion == CHAMPION
    await world.time.sleep(120)
    assert (unserved.seen, endpoints.lost, endpoints.misled) == ([], [], [])
    state = await region.fleet.observe()
    assert state.phase is RegionPhase.STEADY, state
    assert (region.versions()[0], state.weight, state.mirror) == (CHAMPION, 0, 0)
    assert CHALLENGER not in {each.version for each in (state.stable, state.canary) if each}


async def test_one_that_comes_after_the_last_look_is_named_by_the_next_look(tmp_path: Path) -> None:
    world = ClusterWorld(tmp_path, demo_on_clusters((REGION,)))
    region = world.regions[REGION]
    world.when("finalize", "done", lambda: _kubectl(region))
    result = await world.deliver()
    assert result.ending is Ending.DELIVERED
    await world.time.sleep(60)
    state = await region.fleet.observe()
    assert state.foreign_change and KUBECTL in state.foreign_change.reason
    assert (world.registry.champion, state.foreign_change.version) == (CHALLENGER, CHAMPION)
