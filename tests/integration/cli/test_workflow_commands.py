"""`tidegate workflow ...` against an API server behind a socket, as a person would type it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.kube.server import FakeServers, one_region
from fakes.schemas import problems_in
from fakes.services.embedded_mlflow import write_embedded_mlflow
from fakes.terminal import Tidegate
from fakes.workflow.cases import CASES, GOLDEN, template
from fakes.workflow.interpreter import Controller, Ended, Pod

from registry.versions import MlflowRegistry
from rollouts.kube.resources import CONFIG_MAPS, WORKFLOW_TEMPLATES, WORKFLOWS
from tidegate.cli import command_tree
from tidegate.core.model import Json
from tidegate.testing import write_tiny_model

HUB = "hub"
SPEC = str(GOLDEN / "one-region" / "delivery.yaml")


class Hub:
    """The cluster that runs workflows."""

    def __init__(self, servers: FakeServers) -> None:
        self._servers = servers
        self.cluster = servers.api(HUB).cluster

    def workflows(self) -> list[Json]:
        found: list[Json] = self._servers.do(lambda: self.cluster.list(WORKFLOWS))
        return found


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with one_region(HUB, tmp_path, monkeypatch, namespace="serving") as servers:
        yield Hub(servers)


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
    assert problems_in(created) == []
    assert created["spec"]["workflowTemplateRef"] == {"name": "support-llm"}
    assert created["spec"]["arguments"]["parameters"] == [{"name": "version", "value": "7"}]
    template = hub.cluster.get(WORKFLOW_TEMPLATES, "support-llm")
    written = yaml.safe_load_all((GOLDEN / "one-region" / "expected.yaml").read_text())
    assert template["spec"] == list(written)[-1]["spec"]
    assert "golden.jsonl" in hub.cluster.get(CONFIG_MAPS, "support-llm-spec")["data"]


def test_submit_again_finds_the_template_there(tidegate: Tidegate, hub: Hub) -> None:
    tidegate("workflow", "submit", SPEC, "--version", "7", "--apply")
    said = tidegate("workflow", "submit", SPEC, "--version", "8", "--output", "json")
    assert said.json["namespace"] == "serving"
    parameters = [each["spec"]["arguments"]["parameters"] for each in hub.workflows()]
    assert [{"name": "version", "value": "8"}] in parameters


def test_submit_without_a_template_says_what_brings_it(tidegate: Tidegate, hub: Hub) -> None:
    said = tidegate("workflow", "submit", SPEC, "--version", "7")
    assert said.code == 2
    assert "there is no WorkflowTemplate support-llm in the namespace serving" in said.err
    assert hub.workflows() == []


@pytest.mark.parametrize("case", CASES)
async def test_the_command_line_of_each_container_is_taken(case: str) -> None:
    ran: list[str] = []

    async def run(pod: Pod) -> Ended:
        program, *words = pod.argv
        command: Any = command_tree()
        context = command.make_context(program, words)
        while hasattr(command, "commands"):
            name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, words, parent=context)
        ran.append(program)
        return Ended(0, "d1\n")

    workflow = await Controller(run).submit(template(case), version="7")
    assert (workflow.phase, set(ran), len(ran) > 5) == ("Succeeded", {"tidegate"}, True)
