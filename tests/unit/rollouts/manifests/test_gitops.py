"""What GitOps tools are told to leave alone: tried against Argo CD's rules, and by Kustomize."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from fakes.clusters.region import ClusterRegion, a_fleet, an_image
from fakes.clusters.reverting import ArgoCd
from fakes.fleet import read_fleet, release

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


async def serving(traffic: str = TrafficRouter.GATEWAY_API) -> ClusterRegion:
    """Version 1 serves, as Git has it."""
    region = ClusterRegion(spec=a_fleet("eu-west-1", traffic=traffic))
    await region.fleet.deploy(an_image("1"))
    return region


@pytest.fixture
async def region() -> ClusterRegion:
    return await serving()


async def a_trial(region: ClusterRegion) -> None:
    await region.fleet.deploy(an_image("2"))
    await region.fleet.mirror(100)
    await region.fleet.shift(50)


def settings_for(region: ClusterRegion) -> Json:
    return argo_cd_settings(delivered_objects(region.plainly(an_image("0"))))


class TestArgoCd:
    @pytest.mark.parametrize(("traffic", "options"), [("gateway-api", ["ServerSideApply=true"]), ("istio", [])])
    async def test_with_them_it_sees_no_difference_and_changes_none(self, traffic: str, options: list[str]) -> None:
        region = await serving(traffic)
        settings = settings_for(region)
        settings["syncPolicy"]["syncOptions"] += options
        argo_cd = ArgoCd(region.cluster, region.plainly(an_image("1")), settings)
        await a_trial(region)
        assert (argo_cd.out_of_sync(), argo_cd.self_heal()) == ([], [])
        await region.fleet.promote()
        assert argo_cd.out_of_sync() == []
        await region.fleet.rollback("1")
        assert argo_cd.out_of_sync() == []


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
    named = {(each.resource.group, each.resource.kind, each.name) for each in delivered_objects(serving)}
    assert named == {(resource_of(each).group, each["kind"], each["metadata"]["name"]) for each in serving}
    assert not named & {(resource_of(each).group, each["kind"], each["metadata"]["name"]) for each in others}


def test_an_object_with_other_content_than_a_spec_is_ignored_whole() -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}, "immutable": True}
    (found,) = delivered_objects([body, body])
    assert found.fields == ("/data", "/immutable", "/metadata/labels", "/metadata/annotations")
    assert argo_cd_settings([found])["ignoreDifferences"] == [
        {"group": "", "kind": "ConfigMap", "name": "a", "jsonPointers": list(found.fields)}
    ]


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
