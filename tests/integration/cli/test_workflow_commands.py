"""`tidegate workflow ...` against an API server behind a socket, as a person would type it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
import yaml
from fakes.kube.server import FakeServers, one_region
from fakes.services.embedded_mlflow import write_embedded_mlflow
from fakes.terminal import Tidegate
from fakes.workflow.cases import GOLDEN

from registry.adapters.mlflow_models import MlflowRegistry
from rollouts.kube.model import Resource
from rollouts.kube.resources import CONFIG_MAPS, EVENTS, PODS, WORKFLOW_TEMPLATES, WORKFLOWS
from rollouts.manifests.schema import problems_in
from tidegate.core.model import Json
from tidegate.testing import write_tiny_model

HUB = "hub"
SPEC = str(GOLDEN / "one-region" / "delivery.yaml")


class Hub:
    """The cluster that runs workflows; its controller is the test."""

    def __init__(self, servers: FakeServers) -> None:
        self._servers = servers
        self.cluster = servers.api(HUB).cluster

    def workflows(self) -> list[Json]:
        found: list[Json] = self._servers.do(lambda: self.cluster.list(WORKFLOWS))
        return found

    def report(self, name: str, phase: str, *nodes: Json) -> None:
        """As the controller writes it; from the thread of the cluster."""
        status = {"phase": phase, "nodes": {node["id"]: node for node in nodes}}
        self.cluster.patch(WORKFLOWS, name, {"status": status})

    def has_pod(self, workflow: str, node: str, *, said: Sequence[str]) -> None:
        """The pod of that node, and what the kubelet said of it; from the thread of the cluster."""
        metadata = {
            "name": f"{workflow}-{node}",
            "namespace": "serving",
            "labels": {"workflows.argoproj.io/workflow": workflow},
            "annotations": {"workflows.argoproj.io/node-id": node},
        }
        spec = {"containers": [{"name": "main", "image": "tidegate"}]}
        self.cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        about = {"kind": "Pod", "name": metadata["name"], "namespace": "serving"}
        for number, message in enumerate(said):
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{metadata['name']}.{number}", "namespace": "serving"},
                "involvedObject": about,
                "reason": "FailedMount",
                "type": "Warning",
                "message": message,
            }
            self.cluster.create(EVENTS, event)

    def once_asked(self, verb: str, resource: Resource, times: int, action: Callable[[], None]) -> Future[None]:
        return self._servers.once_asked(HUB, verb, resource, times, action)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with one_region(HUB, tmp_path, monkeypatch, namespace="serving") as servers:
        yield Hub(servers)


def a_pod(step: str, phase: str, code: int | None = None, *, template: str = "stage", at: str = "") -> Json:
    outputs = {"outputs": {"exitCode": str(code)}} if code is not None else {}
    parameters = [{"name": "step", "value": step}, {"name": "delivery", "value": "d"}]
    inputs = {"inputs": {"parameters": parameters}} if template == "stage" else {}
    return {"id": step, "type": "Pod", "templateName": template, "phase": phase, "finishedAt": at, **inputs, **outputs}


@pytest.fixture
def embedded(tmp_path: Path) -> str:
    """The tracking URI of a registry whose files are on this machine's disk."""
    uri = write_embedded_mlflow(tmp_path / "registry")
    MlflowRegistry(uri).register("support-llm", write_tiny_model(tmp_path / "source"))
    return uri


def test_submit_refuses_a_version_whose_files_no_pod_can_read(tidegate: Tidegate, hub: Hub, embedded: str) -> None:
    said = tidegate("workflow", "submit", SPEC, "--version", "1", "--apply", "--tracking-uri", embedded)
    assert (said.code, said.out) == (2, "")
    assert "models:/support-llm/1: its files are at file:///" in said.err
    assert "a file of one machine; expected an MLflow server as pods reach it" in said.err
    assert hub.workflows() == []


def test_submit_says_when_it_cannot_know_where_the_files_are(tidegate: Tidegate, hub: Hub, embedded: str) -> None:
    said = tidegate("workflow", "submit", SPEC, "--version", "9", "--apply", "--tracking-uri", embedded)
    assert (said.code, len(hub.workflows())) == (0, 1)
    assert "whether pods can read the version's files is not known: models:/support-llm/9: no such version" in said.err


def test_submit_brings_the_template_and_starts_it(tidegate: Tidegate, hub: Hub) -> None:
    said = tidegate("workflow", "submit", SPEC, "--version", "7", "--apply")
    (created,) = hub.workflows()
    assert (said.code, said.out) == (0, f"{created['metadata']['name']}\n")
    assert created["metadata"]["name"].startswith("support-llm-7-")
    assert problems_in(created) == ()
    assert created["spec"]["workflowTemplateRef"] == {"name": "support-llm"}
    assert created["spec"]["arguments"]["parameters"] == [{"name": "version", "value": "7"}]
    template = hub.cluster.get(WORKFLOW_TEMPLATES, "support-llm")
    written = yaml.safe_load_all((GOLDEN / "one-region" / "expected.yaml").read_text())
    assert template["spec"] == list(written)[-1]["spec"]
    assert "golden.jsonl" in hub.cluster.get(CONFIG_MAPS, "support-llm-spec")["data"]


def test_submit_again_finds_the_template_there(tidegate: Tidegate, hub: Hub) -> None:
    tidegate("workflow", "submit", SPEC, "--version", "7", "--apply")
    said = tidegate("workflow", "submit", SPEC, "--version", "7", "--delivery", "0f3c", "--output", "json")
    assert said.json["namespace"] == "serving"
    parameters = [each["spec"]["arguments"]["parameters"] for each in hub.workflows()]
    assert {"name": "delivery", "value": "0f3c"} in parameters[0] + parameters[1]


def test_submit_without_a_template_says_what_brings_it(tidegate: Tidegate, hub: Hub) -> None:
    said = tidegate("workflow", "submit", SPEC, "--version", "7")
    assert said.code == 2
    assert "there is no WorkflowTemplate support-llm in the namespace serving" in said.err
    assert hub.workflows() == []


def test_submit_wants_a_number(tidegate: Tidegate, hub: Hub) -> None:
    assert tidegate("workflow", "submit", SPEC, "--version", "challenger").code == 2


def test_watch_tells_every_step_and_exits_as_the_delivery_ended(tidegate: Tidegate, hub: Hub) -> None:
    name = tidegate("workflow", "submit", SPEC, "--version", "7", "--apply").out.strip()

    def controller() -> None:
        build = a_pod("build", "Running")
        hub.report(name, "Running", build)
        ended = a_pod("build", "Failed", 3, at="2026-01-01T09:00:00Z")
        hub.report(name, "Failed", ended, a_pod("close", "Failed", 1, template="close", at="2026-01-01T09:05:00Z"))

    reported = hub.once_asked("get", WORKFLOWS, 2, controller)
    said = tidegate("workflow", "watch", name, SPEC)
    reported.result()
    assert said.out.splitlines()[0] == f"{name}: pending"
    assert said.out.splitlines()[-3:] == [
        "build: failed, exit code 3",
        "close: failed, exit code 1",
        f"{name}: failed",
    ]
    assert said.code == 1


@pytest.mark.slow(reason="events of a pod are looked for after ten seconds")
def test_watch_tells_which_secret_a_pod_waits_for(tidegate: Tidegate, hub: Hub) -> None:
    name = tidegate("workflow", "submit", SPEC, "--version", "7", "--apply").out.strip()
    missing = 'MountVolume.SetUp failed for volume "secret-mlflow" : secret "mlflow" not found'

    def controller() -> None:
        pending = {**a_pod("build", "Pending"), "message": "PodInitializing"}
        hub.report(name, "Running", pending)
        hub.has_pod(name, "build", said=[missing, missing])

    reported = hub.once_asked("get", WORKFLOWS, 2, controller)
    ended = {**a_pod("build", "Failed", 4), "message": ""}
    told = hub.once_asked("list", EVENTS, 2, lambda: hub.report(name, "Failed", ended))
    said = tidegate("workflow", "watch", name, SPEC)
    reported.result()
    told.result()
    assert said.out.splitlines()[1:] == [
        "build: pending (PodInitializing)",
        f"{name}: running",
        f"build: pending: {missing}",
        "build: failed, exit code 4",
        f"{name}: failed",
    ]


def test_watch_of_what_is_not_there(tidegate: Tidegate, hub: Hub) -> None:
    said = tidegate("workflow", "watch", "support-llm-9-abcde", SPEC)
    assert (said.code, said.err) == (
        2,
        "tidegate: there is no workflow support-llm-9-abcde here; "
        "see `kubectl get workflows`, or name another --context\n",
    )


def test_a_spec_without_a_workflow_says_so(tidegate: Tidegate, delivery: Path) -> None:
    said = tidegate("workflow", "render", str(delivery))
    assert (said.code, "has no `workflow`" in said.err) == (2, True)
