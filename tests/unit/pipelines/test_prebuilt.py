"""An image of the team's own: what its pods get, what a spec of it may say, and what a plan says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.clusters.admission import Refusing
from fakes.delivery.registry import FakeRegistry
from fakes.fleet import release
from fakes.golden import is_golden
from fakes.schemas import problems_in

from engine_images.launch import is_known
from pipelines.adapters.engines import engine_provider
from pipelines.plan.prebuilt import engine_notes, image_launch
from pipelines.plan.region_objects import rendering
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from rollouts.cluster.model import launch_of
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.render import render
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine, ImageLaunch
from tidegate.core.model import Json
from tidegate.core.spec import parse_spec
from tidegate.core.yaml_text import yaml_text
from tidegate.testing import write_tiny_model

EXAMPLE = (Path(__file__).parents[3] / "examples/kubernetes/delivery.yaml").read_text()
IMAGE = "vllm/vllm-openai@sha256:" + "7" * 64
DIGEST = "d" * 64
GOLDEN = Path(__file__).parents[2] / "golden/prebuilt"


def spec_of(engine: dict[str, Any], **parts: Any) -> Delivery:
    said = yaml.safe_load(EXAMPLE)
    vllm = {"version": "0.32.0", "args": {"max-model-len": 8192}}
    said["engine"] = {"vllm": vllm, "accelerator": "nvidia-l40s", "image": IMAGE, **engine}
    said |= parts
    return parse_spec(yaml.safe_dump(said), Delivery, file="delivery.yaml")


def clusters(spec: Delivery) -> ArgoFleetSpec:
    assert isinstance(spec.fleet, ArgoFleetSpec)
    return spec.fleet


def launch(spec: Delivery) -> ImageLaunch:
    found = image_launch(spec, clusters(spec), spec.engine, version="7", digest=DIGEST)
    assert found is not None
    return found


def objects(spec: Delivery) -> tuple[Json, ...]:
    engine = Engine(version="7", digest=DIGEST, model="support-llm", image=IMAGE, launch=launch(spec))
    return tuple(rendering(spec, clusters(spec), "eu-west-1")(engine))


def pod(spec: Delivery) -> Json:
    template: Json = objects(spec)[-1]["spec"]["template"]
    return template


WAYS: dict[str, dict[str, Any]] = {
    "registry": {},
    "claim": {"weights": {"claim": "models", "path": "support-llm/{version}"}},
    "image": {"weights": {"path": "/models/support-llm"}},
    "hub": {"weights": {"model": "acme/support-llm", "revision": "v{version}"}},
    "older": {"vllm": {"version": "0.31.2", "args": {"max-num-seqs": 64}}},
}


@pytest.mark.parametrize("way", WAYS)
def test_everything_is_valid_to_the_letter(way: str) -> None:
    found = {each["metadata"]["name"]: problems_in(each) for each in objects(spec_of(WAYS[way]))}
    assert {name: problems for name, problems in found.items() if problems} == {}


@pytest.mark.parametrize("way", WAYS)
def test_its_pods_get_what_is_written_here(way: str) -> None:
    """Its own entrypoint, with arguments; the weights, and who proves them; and no secret for the engine itself."""
    is_golden(yaml_text(pod(spec_of(WAYS[way]))["spec"]), GOLDEN / f"{way}.yaml")


def test_how_it_was_started_can_be_read_from_its_pods() -> None:
    spec = spec_of(WAYS["claim"])
    assert launch_of(pod(spec)) == launch(spec)


def test_a_plan_says_what_is_given_up() -> None:
    first, *others = engine_notes(spec_of({}))
    assert "no proven compile cache" in first
    assert others == []
    claimed = spec_of({**WAYS["claim"], "image": {"reference": "vllm/vllm-openai:v0.32.0", "by_tag": True}})
    _, tag, weights = engine_notes(claimed)
    assert "is a tag: engines of one version may run different images" in tag
    assert "support-llm/{version} of the claim models" in weights
    assert list(engine_notes(parse_spec(EXAMPLE, Delivery, file="delivery.yaml"))) == []


@pytest.mark.parametrize(
    ("version", "ends"), [("0.31.2", False), ("0.32.1", True), ("1.0.0rc1", True), ("nightly", False)]
)
def test_a_vllm_of_which_nothing_is_known_is_not_told_to_end_its_answers(version: str, ends: bool) -> None:
    assert is_known(spec_of({"vllm": {"version": version}}).engine.vllm) is ends


@pytest.mark.parametrize("way", WAYS)
def test_the_api_server_takes_these_pods_and_no_others(way: str) -> None:
    spec = spec_of(WAYS[way])
    wanted = objects(spec)[-1]
    engine = release(image=IMAGE, launch=launch(spec), accelerator="nvidia-l40s")
    fleet = clusters(spec).model_copy(update={"admission": True})
    policies = Refusing(render(fleet, engine, parts=(RenderPart.SETUP,)))
    driver = "system:serviceaccount:serving:support-llm-driver"
    assert policies.refusals(wanted, user=driver) == []
    pods = wanted["spec"]["template"]["spec"]
    pods["containers"][0]["image"] = "vllm/vllm-openai:latest"
    pods["serviceAccountName"] = "default"
    pods["volumes"].append({"name": "x", "hostPath": {"path": "/"}})
    assert len(policies.refusals(wanted, user=driver)) == 3


async def test_all_versions_are_served_from_that_image(tmp_path: Path) -> None:
    registry = FakeRegistry()
    version = registry.register("support-llm", write_tiny_model(tmp_path / "model"))
    engine = await engine_provider(spec_of({}), StateFolder(tmp_path / "state"), registry).prepare(version, print)
    assert engine.image == IMAGE
    assert engine.launch is not None
    assert engine.launch.pull is not None
    assert version.digest in engine.launch.pull.command
