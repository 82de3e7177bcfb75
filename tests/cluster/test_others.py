"""A healthy Rollout, Services and a route of a delivery's names that others made: told by name, and left alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.endpoints import Endpoints, service
from cluster.others import WRITER, Others
from fakes.clusters.region import PODS_OF_OTHERS

from registry.conventions import ENGINE_IMAGE
from rollouts.manifests.conventions import stable_service

NAME = "occupied"
IMAGE = f"registry.example.com/{NAME}@sha256:{'a' * 64}"
COMMANDS = {"deliver": 2, "rollback": 4}
"""What writes, and the exit code here."""


@dataclass(frozen=True)
class Scene:
    """A delivery that is wanted where others are."""

    model: DeliveredModel
    others: Others


@pytest.fixture(scope="module")
def scene(regions: Bed) -> Iterator[Scene]:
    region = next(iter(regions.around.clusters))
    model = DeliveredModel(regions, NAME, [[region]])
    for alias in ("champion", "challenger"):
        version = model.registry.register(NAME, model.export(), alias=alias)
        model.registry.mark(version, {ENGINE_IMAGE: IMAGE})
    others = Others(regions, region, NAME)
    others.move_in()
    yield Scene(model, others)
    others.move_out()


@pytest.mark.parametrize("command", COMMANDS)
def test_it_names_them_with_their_manager_and_writes_nothing(scene: Scene, command: str) -> None:
    before = scene.others.objects()
    assert {each.split()[1] for each in before} >= {"Rollout", "Service", "HTTPRoute", "Pod"}
    watch = Endpoints(lambda: scene.model.bed.client(scene.others.region), service(stable_service(NAME)))
    said = scene.model.start(command, "delivery.yaml").finish()
    watch.end()
    assert said.code == COMMANDS[command], f"exit {said.code}:\n{said.out}\n{said.err}"
    told = said.out + said.err
    assert f"Rollout {NAME} in {scene.model.bed.namespace} is not tidegate's" in told, told
    assert WRITER in told, told
    assert scene.others.objects() == before
    assert (watch.fewest, scene.others.ready()) == (PODS_OF_OTHERS, PODS_OF_OTHERS)
