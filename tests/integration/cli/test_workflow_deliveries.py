"""A rendered workflow, walked task by task: each container is the real `tidegate stage`, a process with its own disk.

What they share is what pods share in a cluster: MLflow, the regions' API servers and engines, behind sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.clusters.served import Clusters, clusters, delivery_to, mark_images, write_golden_set
from fakes.workflow.commands import Commands
from fakes.workflow.engine import Engines, engines
from fakes.workflow.interpreter import Controller, Workflow

from pipelines.spec.delivery import Delivery
from pipelines.workflow.model import SPEC_FOLDER
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_models import MlflowRegistry
from registry.adapters.mlflow_store import embedded_uri
from registry.model import DeliverySummary
from tidegate.core.model import Json
from tidegate.core.spec import load_spec

# Up to forty processes one after the other, on machines that may do other things meanwhile.
pytestmark = pytest.mark.timeout(900)

FIRST, SECOND, THIRD = "eu-west-1", "us-east-1", "ap-south-1"
STEPS = [
    "build",
    *(f"{stage}@{FIRST}" for stage in ("deploy", "smoke", "offline", "promote")),
    "bake@1",
    *(f"{stage}@{region}" for region in (SECOND, THIRD) for stage in ("deploy", "smoke", "promote")),
    "bake@2",
    "finalize",
]

WORKFLOW = {
    "image": "registry.example/tidegate@sha256:" + "5" * 64,
    "tracking_uri": "http://mlflow.example",
    "kubeconfig": "clusters",
    "patience": "3s",
}


class Place:
    """Everything around a workflow, and what to look at afterwards."""

    def __init__(self, spec_path: Path, name: str, state: Path, clusters: Clusters, served: Engines) -> None:
        self.engines, self.clusters = served, clusters
        self.registry, self.deliveries = MlflowRegistry(embedded_uri(state)), MlflowDeliveries(embedded_uri(state))
        self._spec_path, self.name = spec_path, name
        self.folder = spec_path.parent
        variables = {
            "MLFLOW_TRACKING_URI": embedded_uri(state),
            "KUBECONFIG": str(clusters.servers.kubeconfig),
            "CI": "1",
        }
        self._mounted = spec_path.parent / "mounted"
        self.commands = Commands(spec_path.parent / "pods", variables, {SPEC_FOLDER: self._mounted})
        self.controller = Controller(self.commands.run, sleep=_at_once)

    def change(self, **parts: Any) -> None:
        """Change the spec, before anything is rendered."""
        said = yaml.safe_load(self._spec_path.read_text())
        self._spec_path.write_text(yaml.safe_dump(said | parts))

    def template(self) -> Json:
        """The template, whose ConfigMap lies where pods have it mounted."""
        # Here, since Hera takes a second to load, in every worker of a run.
        from pipelines.workflow.render import blueprint_of, rendered

        objects = rendered(blueprint_of(load_spec(self._spec_path, Delivery), self._spec_path))
        (files,) = (each["data"] for each in objects if each["kind"] == "ConfigMap")
        (volume,) = (each for each in objects[-1]["spec"]["volumes"] if "configMap" in each)
        for item in volume["configMap"]["items"]:
            place = self._mounted / item["path"]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(files[item["key"]])
        return objects[-1]

    async def submit(self, **arguments: str) -> Workflow:
        return await self.controller.submit(self.template(), version="2", **arguments)

    @property
    def delivery(self) -> DeliverySummary:
        """The only one."""
        (found,) = self.deliveries.deliveries(self.name)
        return found

    def said(self, kind: str) -> list[str]:
        return [event.step for event in self.deliveries.events(self.delivery.id) if event.kind == kind]

    def has_said(self, kind: str, *steps: str) -> Callable[[], bool]:
        """Whether one of the steps has."""

        def look() -> bool:
            found = self.deliveries.deliveries(self.name)
            return bool(found) and not set(steps).isdisjoint(self.said(kind))

        return look

    @property
    def champion(self) -> str:
        return self.registry.resolve(self.name, "champion").version


async def _at_once(_: float) -> None:
    """Pauses between tries are the cluster's."""


@pytest.fixture
def place(registered: Path, tmp_path: Path, name: str, state: Path) -> Iterator[Place]:
    write_golden_set(tmp_path)
    mark_images(MlflowRegistry(embedded_uri(state)), name)
    with engines(tmp_path / "champion" / "model") as served:
        spec = delivery_to([[FIRST], [SECOND, THIRD]], name=name, engine=served.url) | {"workflow": WORKFLOW}
        registered.write_text(yaml.safe_dump(spec))
        with clusters(spec, tmp_path) as there:
            yield Place(registered, name, state, there, served)


@pytest.mark.long
async def test_it_is_delivered(place: Place) -> None:
    workflow = await place.submit()
    assert workflow.phase == "Succeeded", place.commands.errors
    assert place.delivery.outcome == "delivered"
    assert sorted(place.said("done")) == sorted(STEPS)
    assert (place.champion, place.clusters.versions()) == ("2", ["2"] * 3)


@pytest.mark.slow(reason="each step is a process")
async def test_a_bad_version_is_taken_back_and_no_verdict_is_asked_twice(place: Place) -> None:
    place.engines.bad_canary = True
    workflow = await place.submit()
    assert (workflow.phase, workflow.closed.code) == ("Failed", 1), place.commands.errors
    assert place.delivery.outcome == "rolled-back"
    assert (place.delivery.reason or "").startswith(f"offline@{FIRST}: gate quality:")
    assert workflow.tries(f"deliver.wave-1(0:{FIRST}).offline") == 1
    assert workflow.nodes["deliver.bake-1"].phase == "Omitted"
    assert (place.champion, place.clusters.versions()) == ("1", ["1"] * 3)


@pytest.mark.long
async def test_a_wave_that_is_refused_takes_the_first_one_back(place: Place) -> None:
    place.change(approvals=[{"before": "wave", "wave": 2, "by": "names"}])
    running = asyncio.create_task(place.submit())
    # Both regions of the wave wait for one answer; the one who comes first asks.
    await until(place.has_said("waiting", f"deploy@{SECOND}", f"deploy@{THIRD}"), running)
    refusal = ["approve", place.delivery.id, "wave@2", "--refuse", "--by", "ann", "--reason", "the sale begins"]
    assert (await place.commands.command(refusal, new_folder(place))).code == 0
    workflow = await running
    assert (workflow.phase, workflow.closed.code) == ("Failed", 1), place.commands.errors
    assert place.delivery.outcome == "rolled-back"
    assert "wave@2 was refused by ann" in (place.delivery.reason or "")
    assert (place.champion, place.clusters.versions()) == ("1", ["1"] * 3)


@pytest.mark.long
async def test_a_step_that_is_killed_is_tried_again(place: Place) -> None:
    place.commands.kill_when["bake@1"] = place.has_said("started", "bake@1")
    workflow = await place.submit()
    assert workflow.phase == "Succeeded", place.commands.errors
    assert workflow.tries("deliver.bake-1") == 2
    assert (place.said("started").count("bake@1"), place.said("done").count("bake@1")) == (2, 1)
    assert (place.delivery.outcome, place.champion, place.clusters.versions()) == ("delivered", "2", ["2"] * 3)


@pytest.mark.long
async def test_a_workflow_that_is_lost_is_carried_on_by_another(place: Place) -> None:
    lost = asyncio.create_task(place.submit())
    await until(place.has_said("started", "bake@1"), lost)
    lost.cancel()
    await asyncio.wait([lost])
    assert place.delivery.outcome is None
    # It asked for so long between two steps; until then it might only be slow.
    await asyncio.sleep(4)
    workflow = await place.submit(delivery=place.delivery.id)
    assert workflow.phase == "Succeeded", place.commands.errors
    assert (place.delivery.outcome, place.champion, place.clusters.versions()) == ("delivered", "2", ["2"] * 3)
    assert all(place.said("started").count(step) == 1 for step in STEPS if step != "bake@1")


async def until(look: Callable[[], bool], running: asyncio.Task[Workflow]) -> None:
    """Wait for what `look` sees while the workflow goes on."""
    while not look():
        assert not running.done(), running.result()
        await asyncio.sleep(0.2)


def new_folder(place: Place) -> Path:
    folder = place.folder / "person"
    folder.mkdir()
    return folder
