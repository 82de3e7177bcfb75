"""What GitOps tools are told to leave alone: by what Argo CD compares, and by Kustomize."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from fakes.clusters.region import ClusterRegion, a_fleet, an_image
from fakes.fleet import read_fleet, release
from fakes.kube.cluster import merged
from jsonpatch import JsonPatchConflict, apply_patch

from rollouts.kube.resources import resource_of
from rollouts.manifests.conventions import RenderPart, TrafficRouter
from rollouts.manifests.gitops import argo_cd_settings, delivered_objects
from rollouts.manifests.render import render
from tidegate.cli import main
from tidegate.core.model import Json

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[4]
EXAMPLE = str(ROOT / "examples/kubernetes/delivery.yaml")
GOLDEN = ROOT / "tests/golden/manifests"


def visible(body: Json, settings: Json) -> Json:
    """What Argo CD compares with Git: without what is ignored (RFC 6902 `remove`), and what the API server writes."""
    left = {key: each for key, each in deepcopy(body).items() if key != "status"}
    identity = (resource_of(body).group, body["kind"], body["metadata"]["name"])
    for rule in settings["ignoreDifferences"]:
        if identity == (rule["group"], rule["kind"], rule["name"]):
            for pointer in rule["jsonPointers"]:
                with suppress(JsonPatchConflict):
                    left = apply_patch(left, [{"op": "remove", "path": pointer}])
    left["metadata"] = {key: each for key, each in left["metadata"].items() if key in {"name", "labels", "annotations"}}
    return left


@pytest.mark.parametrize("traffic", TrafficRouter)
async def test_argo_cd_sees_no_difference_whatever_a_delivery_does(traffic: str) -> None:
    region = ClusterRegion(spec=a_fleet("eu-west-1", traffic=traffic))
    await region.fleet.deploy(an_image("1"))
    git = region.plainly(an_image("1"))
    settings = argo_cd_settings(delivered_objects(git))

    def differing() -> list[str]:
        lives = [(each, region.cluster.get(resource_of(each), each["metadata"]["name"])) for each in git]
        seen = [(visible(each, settings), visible(live, settings)) for each, live in lives]
        return [wanted["kind"] for wanted, live in seen if merged(live, wanted) != live]

    await region.fleet.deploy(an_image("2"))
    await region.fleet.mirror(100)
    await region.fleet.shift(50)
    assert differing() == []
    await region.fleet.promote()
    assert differing() == []
    await region.fleet.rollback("1")
    assert differing() == []


@pytest.mark.parametrize("case", ["canary", "istio", "keda", "shared-cache"])
def test_every_object_that_a_delivery_writes_is_named_and_none_that_git_owns(case: str) -> None:
    fleet = read_fleet((GOLDEN / case / "fleet.yaml").read_text())
    accelerators = {
        "istio": "nvidia-h100-80gb",
        "keda": "nvidia-a100-80gb",
        "canary": "nvidia-l40s",
    }
    of = release(accelerator=accelerators.get(case, "cpu"))
    serving = render(fleet, of, parts=(RenderPart.SERVING,))
    others = render(fleet, of, parts=(RenderPart.SETUP,))
    named = {(each["group"], each["kind"], each["name"]) for each in delivered_objects(serving)}
    assert named == {(resource_of(each).group, each["kind"], each["metadata"]["name"]) for each in serving}
    assert not named & {(resource_of(each).group, each["kind"], each["metadata"]["name"]) for each in others}


def test_an_object_with_other_content_than_a_spec_is_ignored_whole() -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}, "immutable": True}
    pointers = ["/data", "/immutable", "/metadata/labels", "/metadata/annotations"]
    found = [{"group": "", "kind": "ConfigMap", "name": "a", "jsonPointers": pointers}]
    assert argo_cd_settings(delivered_objects([body, body]))["ignoreDifferences"] == found


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on this machine")
def test_kustomize_puts_the_annotation_of_flux_on_what_deliveries_write_alone(tmp_path: Path) -> None:
    """With the patch of the page."""
    page = (ROOT / "docs/guides/gitops.md").read_text()
    patch = next(block for block in page.split("```yaml\n") if block.startswith("patches:")).partition("```")[0]
    fleet, of = read_fleet((GOLDEN / "keda/fleet.yaml").read_text()), release(accelerator="nvidia-a100-80gb")
    (tmp_path / "region.yaml").write_text(yaml.safe_dump_all(render(fleet, of)))
    (tmp_path / "kustomization.yaml").write_text(f"resources: [region.yaml]\n{patch}")
    built = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=True).stdout
    marked = [
        each["kind"]
        for each in yaml.safe_load_all(built)
        if (each["metadata"].get("annotations") or {}).get("kustomize.toolkit.fluxcd.io/ssa") == "IfNotPresent"
    ]
    assert sorted(marked) == sorted(each["kind"] for each in render(fleet, of, parts=(RenderPart.SERVING,)))


class TestTheCommand:
    def test_text_is_yaml_to_paste(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["rollout", "render", EXAMPLE, "--as", "argo-ignore"]) == 0
        text = capsys.readouterr().out
        assert text.startswith("# For the `spec` of the Application ")
        pasted = yaml.safe_load(text)
        assert pasted["syncPolicy"] == {"syncOptions": ["RespectIgnoreDifferences=true"]}
        assert ("argoproj.io", "Rollout", "support-llm", "serving") in [
            (each["group"], each["kind"], each["name"], each["namespace"]) for each in pasted["ignoreDifferences"]
        ]
