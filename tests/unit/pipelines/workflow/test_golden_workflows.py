"""What is rendered for each kind of spec, whole: `tests/golden/workflows/CASE/delivery.yaml` gives `expected.yaml`.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/unit/pipelines/workflow`; read the diff.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from fakes.workflow.cases import CASES, GOLDEN, objects, template
from fakes.workflow.interpreter import texts

from pipelines.spec.delivery import Delivery
from pipelines.workflow.render import blueprint_of, rendered
from rollouts.manifests.schema import problems_in
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


@pytest.mark.parametrize("case", CASES)
def test_every_volume_is_there_and_mounted(case: str) -> None:
    spec = template(case)["spec"]
    mounted = set()
    for each in spec["templates"]:
        containers = [*each.get("initContainers", ()), *([each["container"]] if "container" in each else ())]
        wanted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
        own = {volume["name"] for volume in each.get("volumes", ())}
        assert own <= wanted <= own | {volume["name"] for volume in spec["volumes"]}
        mounted |= wanted
    assert {volume["name"] for volume in spec["volumes"]} <= mounted


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
def test_everything_has_a_limit(case: str) -> None:
    for each in template(case)["spec"]["templates"]:
        if "container" in each:
            assert {"activeDeadlineSeconds", "retryStrategy"} <= set(each), each["name"]
            assert each["container"]["resources"]["limits"]["memory"]
            assert each["container"]["securityContext"]["allowPrivilegeEscalation"] is False
