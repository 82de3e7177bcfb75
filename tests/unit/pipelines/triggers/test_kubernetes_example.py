"""`examples/kubernetes/serve.yaml` besides what is rendered for the delivery that it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.schemas import problems_in

from pipelines.adapters.specs import read_delivery
from pipelines.workflow.model import SPEC_FOLDER
from pipelines.workflow.render import blueprint_of, rendered
from tidegate.cli import command_tree

EXAMPLES = Path("examples/kubernetes")
OBJECTS = {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / "serve.yaml").read_text())}
POD = OBJECTS["Deployment"]["spec"]["template"]["spec"]
(SERVE,) = POD["containers"]


def template() -> dict[str, Any]:
    spec = EXAMPLES / "delivery.yaml"
    return rendered(blueprint_of(read_delivery(spec), spec))[-1]


@pytest.mark.parametrize("kind", OBJECTS)
def test_each_object_is_valid_to_the_letter(kind: str) -> None:
    assert problems_in(OBJECTS[kind]) == []


def test_it_serves_the_delivery_that_workflows_run() -> None:
    workflow = template()
    assert OBJECTS["Role"]["rules"][0]["resourceNames"] == [workflow["metadata"]["name"]]
    assert {each["metadata"]["namespace"] for each in OBJECTS.values()} == {workflow["metadata"]["namespace"]}
    (files,) = (each["configMap"] for each in workflow["spec"]["volumes"] if "configMap" in each)
    (mounted,) = (each["configMap"] for each in POD["volumes"] if "configMap" in each)
    assert mounted == files
    steps = [each["container"] for each in workflow["spec"]["templates"] if "container" in each]
    assert {each["image"] for each in steps} == {SERVE["image"]}
    assert POD["securityContext"]["runAsUser"] == workflow["spec"]["securityContext"]["runAsUser"]


def test_its_command_line_is_taken_and_its_service_leads_to_it() -> None:
    command = command_tree().commands["serve"]
    asked = command.make_context("serve", SERVE["args"][1:]).params
    items = {item["path"] for each in POD["volumes"] if "configMap" in each for item in each["configMap"]["items"]}
    assert str(asked["spec"].relative_to(SPEC_FOLDER)) in items
    service, port = OBJECTS["Service"], OBJECTS["Service"]["spec"]["ports"][0]
    assert service["spec"]["selector"] == OBJECTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert asked["address"].endswith(f":{SERVE['ports'][0]['containerPort']}")
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}:{port['port']}"
    assert asked["register"] == f"https://{host}/webhooks/mlflow"
