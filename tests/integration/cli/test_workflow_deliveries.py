"""A rendered workflow, walked task by task: each container is the real `tidegate stage`, a process with its own disk.

What they share is what pods share in a cluster: MLflow, the regions' API servers and engines, behind sockets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes.clusters.served import Clusters, clusters, delivery_to, mark_images, write_golden_set
from fakes.workflow.commands import Commands
from fakes.workflow.engine import Engines, engines
from fakes.workflow.interpreter import Controller, Workflow

from pipelines.spec.delivery import Delivery
from pipelines.workflow.model import SPEC_FOLDER
from registry.deliveries import MlflowDeliveries
from registry.mlflow_client import embedded_uri
from registry.model import DeliverySummary
from registry.versions import MlflowRegistry
from tidegate.core.model import Json
from tidegate.core.spec import load_spec

# Processes one after the other, on machines that may do other things meanwhile.
pytestmark = pytest.mark.timeout(900)

FIRST, SECOND = "eu-west-1", "us-east-1"
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
        variables = {
            "MLFLOW_TRACKING_URI": embedded_uri(state),
            "KUBECONFIG": str(clusters.servers.kubeconfig),
            "CI": "1",
        }
        self._mounted = spec_path.parent / "mounted"
        self.commands = Commands(spec_path.parent / "pods", variables, {SPEC_FOLDER: self._mounted})
        self.controller = Controller(self.commands.run, sleep=_at_once)

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

    async def submit(self) -> Workflow:
        return await self.controller.submit(self.template(), version="2")

    @property
    def delivery(self) -> DeliverySummary:
        """The only one."""
        (found,) = self.deliveries.deliveries(self.name)
        return found

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
        spec = delivery_to([[FIRST], [SECOND]], name=name, engine=served.url) | {"workflow": WORKFLOW}
        registered.write_text(yaml.safe_dump(spec))
        with clusters(spec, tmp_path) as there:
            yield Place(registered, name, state, there, served)


@pytest.mark.slow(reason="each step is a process")
async def test_a_bad_version_is_taken_back_and_no_verdict_is_asked_twice(place: Place) -> None:
    place.engines.bad_canary = True
    workflow = await place.submit()
    assert (workflow.phase, workflow.closed.code) == ("Failed", 1), place.commands.errors
    assert place.delivery.outcome == "rolled-back"
    assert (place.delivery.reason or "").startswith(f"offline@{FIRST}: gate quality:")
    assert workflow.tries(f"deliver.wave-1(0:{FIRST}).offline") == 1
    assert workflow.nodes["deliver.bake-1"].phase == "Omitted"
    assert (place.champion, place.clusters.versions()) == ("1", ["1"] * 2)
