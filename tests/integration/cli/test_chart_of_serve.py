"""The chart and the component of the server, read by Helm and Kustomize themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.services.helm import HELM, helm, objects

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "examples/helm/tidegate-serve"
NAME = "tidegate-serve"
VALUES = ROOT / "examples/helm/support-llm.yaml"

needs_helm = pytest.mark.skipif(not (HELM / "helm_python").exists(), reason="`make test-tools` installs Helm")
needs_kustomize = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl has Kustomize")


@needs_helm
def test_the_chart_of_the_server_is_the_example() -> None:
    found = helm(SERVER, yaml.safe_load(VALUES.read_text(encoding="utf-8")), NAME)
    made = by_name(objects(found["files"]))
    for body in made.values():
        del body["metadata"]["labels"]
    budget = made.pop("PodDisruptionBudget tidegate-serve")
    assert made == by_name(list(yaml.safe_load_all((ROOT / "examples/kubernetes/serve.yaml").read_text("utf-8"))))
    assert budget["spec"]["selector"] == made["Deployment tidegate-serve"]["spec"]["selector"]
    assert not found["lint"]["errors"]


@needs_helm
def test_what_a_team_has_goes_into_the_pod_of_the_server() -> None:
    values = yaml.safe_load(VALUES.read_text(encoding="utf-8")) | {
        "imagePullSecrets": ["pull", "more"],
        "podLabels": {"team": "a7"},
        "podAnnotations": {"seen": "yes"},
        "nodeSelector": {"pool": "small"},
        "tolerations": [{"key": "small", "operator": "Exists"}],
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "args": ["--metrics"],
        "podDisruptionBudget": None,
        "storage": {"size": "1Gi", "accessMode": "ReadWriteOnce", "existingClaim": "inbox"},
    }
    made = by_name(objects(helm(SERVER, values, "other")["files"]))
    template = made["Deployment other"]["spec"]["template"]
    pod = template["spec"]
    (container,) = pod["containers"]
    assert template["metadata"] == {"labels": {"app": "other", "team": "a7"}, "annotations": {"seen": "yes"}}
    assert pod["imagePullSecrets"] == [{"name": "pull"}, {"name": "more"}]
    assert (pod["nodeSelector"], pod["tolerations"]) == (values["nodeSelector"], values["tolerations"])
    assert container["env"][-1] == values["env"][0]
    assert container["args"][-2:] == ["--tls-key=/tls/tls.key", "--metrics"]
    assert {"name": "state", "persistentVolumeClaim": {"claimName": "inbox"}} in pod["volumes"]
    assert not [each for each in made if each.startswith(("PodDisruptionBudget", "PersistentVolumeClaim"))]


@needs_helm
def test_wrong_values_of_the_server_are_refused() -> None:
    wrong = {"image": "registry.example.com/tidegate:latest", "webhok": {}, "user": 0}
    refused = helm(SERVER, yaml.safe_load(VALUES.read_text(encoding="utf-8")) | wrong, NAME)["refused"]
    assert [each for each in ("/image", "webhok", "/user") if each not in refused] == []


@needs_kustomize
def test_the_component_of_the_server_takes_a_namespace_and_an_image(tmp_path: Path) -> None:
    for name in ("kustomization.yaml", "serve.yaml"):
        (tmp_path / "server").mkdir(exist_ok=True)
        shutil.copy(ROOT / "examples/kubernetes" / name, tmp_path / "server" / name)
    built = by_name(
        kustomized(
            tmp_path / "overlay",
            {
                "components": ["../server"],
                "namespace": "llm",
                "images": [{"name": "registry.example.com/tidegate", "digest": f"sha256:{'6' * 64}"}],
            },
        )
    )
    (container,) = built["Deployment tidegate-serve"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.example.com/tidegate@sha256:{'6' * 64}"
    assert {each["metadata"]["namespace"] for each in built.values()} == {"llm"}


def kustomized(folder: Path, kustomization: dict[str, Any]) -> list[Any]:
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    built = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return list(yaml.safe_load_all(built.stdout))


def by_name(bodies: list[Any]) -> dict[str, Any]:
    return {f"{body['kind']} {body['metadata']['name']}": body for body in bodies}
