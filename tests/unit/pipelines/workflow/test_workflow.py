"""A spec as objects of a workflow: to the letter, in the plan's order, in its time, and run."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from fakes.schemas import problems_in
from fakes.workflow.cases import CASES, GOLDEN, blueprint, objects, template
from fakes.workflow.interpreter import DELETED, ERROR, FAILED, LOST, steps_in, texts, tries_again

from pipelines.events.state import before
from pipelines.model import Plan
from pipelines.spec.delivery import Delivery
from pipelines.spec.workflow import out_of_reach
from pipelines.workflow.render import blueprint_of, rendered, supporting_resources
from pipelines.workflow.template import disks, mutex
from registry.model import ModelVersion
from tidegate.core.spec import load_spec
from tidegate.core.yaml_text import yaml_text


@pytest.mark.parametrize("case", CASES)
def test_a_spec_becomes_these_objects(case: str) -> None:
    written = "".join(f"---\n{yaml_text(each)}" for each in objects(case))
    expected = GOLDEN / case / "expected.yaml"
    if "TIDEGATE_REGENERATE" in os.environ:
        assert "CI" not in os.environ, "what CI compares with is written by people"
        expected.write_text(written)
    assert written == expected.read_text()


@pytest.mark.parametrize("case", CASES)
def test_each_of_them_is_valid_to_the_letter(case: str) -> None:
    found = {(each["kind"], each["metadata"]["name"]): problems_in(each) for each in objects(case)}
    assert {name: problems for name, problems in found.items() if problems} == {}


SECRET = re.compile(r"(?i)(password|passwd|token|secret|api[-_]?key|authorization)\s*[:=]\s*\S|-----BEGIN|hooks\.slack")


@pytest.mark.parametrize("case", CASES)
def test_secrets_are_named_and_never_written(case: str) -> None:
    for each in objects(case):
        assert each["kind"] != "Secret"
        assert [text for text in texts(each) if SECRET.search(text)] == []


BY_KIND = "secrets: {registry: [mlflow], judge: [judge-key], notify: [chat]}"


def secrets_by_container(case: str, said: str, folder: Path) -> dict[str, set[str]]:
    """The Secrets that become variables, by template, and by container within those that have two."""
    shutil.copytree(GOLDEN, folder, dirs_exist_ok=True)
    spec = folder / case / "delivery.yaml"
    spec.write_text(spec.read_text().replace("  kubeconfig: clusters\n", f"  kubeconfig: clusters\n  {said}\n"))
    found = {}
    for each in rendered(blueprint_of(load_spec(spec, Delivery), spec))[-1]["spec"]["templates"]:
        named = {f"{each['name']}/{one['name']}": one for one in each.get("initContainers", ())}
        named |= {each["name"]: each["container"]} if "container" in each else {}
        found |= {name: {one["secretRef"]["name"] for one in given["envFrom"]} for name, given in named.items()}
    return found


def test_a_container_gets_only_the_secrets_that_it_has_a_use_for(tmp_path: Path) -> None:
    """A build loads a model that nobody has judged: it reads the registry, and reaches neither people nor clusters."""
    given = secrets_by_container("gpu-build", BY_KIND, tmp_path)
    assert given["engine"] == given["engine/build"] == {"mlflow"}
    assert given["open"] == given["close"] == {"mlflow", "chat"}
    assert given["stage"] == {"mlflow", "judge-key", "chat"}
    assert set(map(frozenset, secrets_by_container("gpu-build", "secrets: [mlflow]", tmp_path).values())) == {
        frozenset({"mlflow"})
    }


@pytest.mark.parametrize("case", CASES)
def test_it_has_the_steps_of_the_plan_in_their_order(case: str) -> None:
    drawn, version = blueprint(case), ModelVersion.model_construct(name="support-llm", version="7")
    regions = drawn.spec.regions.names
    plan = Plan.model_construct(
        name="support-llm", version=version, champion=version, regions=regions, steps=drawn.steps
    )
    assert steps_in(template(case)) == {step.id: {each.id for each in before(plan, step)} for step in plan.steps}


@pytest.mark.parametrize(
    ("why", "addresses"),
    [
        (None, "http://mlflow.mlflow:5000 https://10.0.0.7/mlflow mlflow-artifacts:/1/models/m-1 s3://bucket/1"),
        ("a file of one machine", "file:///srv/artifacts/1 sqlite:////srv/mlflow.db /srv/mlruns ./mlruns"),
        (
            "in a pod that is the pod itself",
            "http://127.0.0.1:5000 http://127.8.0.1 https://localhost:5000/mlflow http://LOCALHOST http://m.localhost "
            "http://[::1]:5000 http://0.0.0.0:5000 mlflow-artifacts://127.0.0.1:5000/1",
        ),
    ],
)
def test_what_no_pod_reaches_is_told_with_the_reason(why: str | None, addresses: str) -> None:
    assert {address: out_of_reach(address) for address in addresses.split()} == dict.fromkeys(addresses.split(), why)


EVERY, CLOSE = ("open", "stage", "close", "engine"), ("close",)
PRESSURE = "The node was low on resource: ephemeral-storage."
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
DEADLINE = "Pod was active on the node longer than the specified deadline"


@pytest.mark.parametrize(
    ("phase", "code", "message", "again"),
    [
        (ERROR, LOST, DELETED, EVERY),
        (FAILED, 4, "main: Error (exit code 4)", EVERY),
        (FAILED, 2, "main: Error (exit code 2)", ()),
        (FAILED, LOST, "Pod was rejected: Node didn't have enough resource: cpu", EVERY),
        (FAILED, LOST, PRESSURE, EVERY),
        (FAILED, LOST, "Preempted in order to admit critical pod", EVERY),
        (FAILED, LOST, "can't find failed message for pod chat-7-x namespace serving", EVERY),
        (FAILED, LOST, "pod failed: neither main nor wait container completed successfully", EVERY),
        (FAILED, 0, "pod failed: wait container did not complete successfully", EVERY),
        (FAILED, 137, PRESSURE, EVERY),
        (FAILED, 143, SHUTDOWN, EVERY),
        (FAILED, 130, SHUTDOWN, CLOSE),
        (FAILED, 137, DEADLINE, EVERY),
        (FAILED, LOST, DEADLINE, ()),
        (FAILED, 137, "main: OOMKilled (exit code 137)", ()),
        (FAILED, 1, PRESSURE, ()),
        (FAILED, 3, "main: Error (exit code 3)", ()),
        (FAILED, LOST, "build: Error (exit code 2)", ("open", "stage", "close")),
        (ERROR, LOST, "Pod failed before main container starts due to PodInitializing: ", ("open", "stage", "close")),
    ],
)
def test_a_lost_pod_is_tried_again_in_all_its_shapes(
    phase: str, code: int, message: str, again: tuple[str, ...]
) -> None:
    rules = {
        each["name"]: each["retryStrategy"]["expression"]
        for each in template("gpu-build")["spec"]["templates"]
        if "container" in each
    }
    found = {name for name, rule in rules.items() if tries_again(rule, status=phase, code=code, message=message)}
    assert found == set(again)


def test_every_model_has_a_lock_of_its_own() -> None:
    models = "a-b-c", "a#b+c", "A-b-c", "a b c", "チャット", "чат", "x" * 80, "x" * 81
    assert len({mutex(model) for model in models}) == len(models)
    assert mutex("support-llm") == "tidegate-support-llm"


def test_every_file_has_a_key_of_its_own() -> None:
    files = dict.fromkeys(("delivery.yaml", "gates/a.jsonl", "gates_a.jsonl", "gates/ä b.jsonl", ".golden"), "")
    input_ = blueprint("one-region").model_copy(update={"files": files})
    (config,) = (each for each in supporting_resources(input_) if each["kind"] == "ConfigMap")
    items = next(each.volume.config_map.items for each in disks(input_) if each.volume.config_map)
    assert {each.path: each.key for each in items} == dict(zip(files, config["data"], strict=True))
    assert all(re.fullmatch(r"[-_a-zA-Z0-9][-._a-zA-Z0-9]*", key) for key in config["data"])
