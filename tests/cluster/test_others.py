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

pytestmark = pytest.mark.timeout(600)

NAME = "occupied"
IMAGE = f"registry.example.com/{NAME}@sha256:{'a' * 64}"
RENDERED = ["--version", "2", "--image", IMAGE]
COMMANDS = {
    "status": (["status", "delivery.yaml"], 4),
    "plan": (["plan", "delivery.yaml"], 2),
    "doctor": (["doctor", "delivery.yaml"], 1),
    "deliver": (["deliver", "delivery.yaml"], 2),
    "render": (["rollout", "render", "delivery.yaml", "--against", *RENDERED], 2),
    "diff": (["rollout", "diff", "delivery.yaml", *RENDERED], 2),
    "rollback": (["rollback", "delivery.yaml"], 4),
}
"""What a person may type there, and the exit code."""


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
    words, code = COMMANDS[command]
    before = scene.others.objects()
    assert {each.split()[1] for each in before} >= {"Rollout", "Service", "HTTPRoute", "Pod"}
    watch = Endpoints(lambda: scene.model.bed.client(scene.others.region), service(stable_service(NAME)))
    said = scene.model.start(*words).finish()
    watch.end()
    assert said.code == code, f"exit {said.code}:\n{said.out}\n{said.err}"
    told = said.out + said.err
    assert f"Rollout {NAME} in {scene.model.bed.namespace} is not tidegate's" in told, told
    assert WRITER in told, told
    assert scene.others.objects() == before
    assert (watch.fewest, scene.others.ready()) == (PODS_OF_OTHERS, PODS_OF_OTHERS)


@pytest.mark.parametrize("command", ["plan", "doctor", "deliver", "render"])
def test_it_names_all_of_them(scene: Scene, command: str) -> None:
    said = scene.model.start(*COMMANDS[command][0]).finish()
    for each in (f"Service {NAME}-stable", f"Service {NAME}-canary", f"HTTPRoute {NAME}", f"Rollout {NAME}"):
        assert f"{each} in {scene.model.bed.namespace} is not tidegate's" in said.out + said.err
