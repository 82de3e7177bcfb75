"""Patches in a spec: told with file, line and field before anything is rendered, and a part of what makes an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import UntrustedImage
from pipelines.plan.customization import customization_conflicts
from pipelines.plan.engines import engine_changes, pod_changes, record_of, with_pod_changes
from pipelines.plan.region_objects import rendering
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trust
from registry.model import ModelVersion, Serving
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.spec import parse_spec

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "examples/kubernetes/delivery.yaml").read_text()
PAGE = (ROOT / "docs/guides/your-pods.md").read_text()
LAST = "  pod: {python: /opt/engine/bin/python}\n"
SIDECAR = "registry.example.com/exporter@sha256:" + "1" * 64
POD = f"""\
  patches:
    - target: {{kind: Rollout}}
      json6902:
        - {{op: add, path: /spec/template/spec/containers/0/env/-, value: {{name: NCCL_DEBUG, value: INFO}}}}
        - {{op: add, path: /spec/template/spec/containers/-, value: {{name: exporter, image: '{SIDECAR}'}}}}
    - target: {{kind: Service, name: support-llm-stable}}
      json6902:
        - {{op: add, path: /metadata/annotations, value: {{team: chat}}}}
"""
VERSION = ModelVersion(name="support-llm", version="7", digest="d" * 64, files={"config.json": "c" * 64}, size_bytes=1)


def delivery(more: str = POD, *, images: tuple[str, ...] = (), secrets: tuple[str, ...] = ()) -> Delivery:
    text = EXAMPLE.replace(LAST, LAST + more)
    trust = Trust.model_validate({"engines": {"images": images}, "spec": {"pods": True, "secrets": secrets}})
    return parse_spec(text, Delivery, file="delivery.yaml", also=lambda spec: customization_conflicts(spec, trust))


def argo(spec: Delivery) -> ArgoFleetSpec:
    assert isinstance(spec.fleet, ArgoFleetSpec)
    return spec.fleet


def test_the_example_of_the_page_is_taken_as_it_stands() -> None:
    example = PAGE.split("```yaml\n")[1].split("```")[0]
    spec = delivery(example.partition("# ...\n")[2].replace("1111...", "1" * 64))
    engine = Engine(version="7", digest="d" * 64, model="support-llm", image=SIDECAR)
    *_, rollout = rendering(spec, argo(spec), "eu-west-1")(engine)
    pods = rollout["spec"]["template"]
    ours, exporter = pods["spec"]["containers"]
    assert (rollout["metadata"]["labels"]["cost-center"], pods["metadata"]["labels"]["cost-center"]) == ("a7", "a7")
    assert pods["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    assert (pods["spec"]["runtimeClassName"], exporter["image"]) == ("nvidia", SIDECAR)
    assert ours["resources"]["limits"]["vpc.amazonaws.com/efa"] == "4"
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in ours["env"]


def test_a_patch_of_pods_makes_another_engine_and_others_do_not() -> None:
    plain, patched = (record_of(delivery(more), VERSION, {}) for more in ("", POD))
    only_service = record_of(delivery("  patches:\n" + POD[POD.index("    - target: {kind: Service") :]), VERSION, {})
    assert (plain.pods, plain.fingerprint) == ({}, only_service.fingerprint)
    assert plain.fingerprint != patched.fingerprint
    assert Serving.of(Serving(now=patched).tag).now == patched
    (change,) = engine_changes(plain, patched)
    assert change.startswith("fleet.patches: default -> ")


def test_an_engine_is_started_again_with_the_patches_that_it_had() -> None:
    now, then = delivery(""), delivery()
    recorded = pod_changes(argo(then))
    assert pod_changes(with_pod_changes(argo(now), recorded)) == recorded
    assert with_pod_changes(argo(then), {}).patches == argo(then).patches[1:]
    with pytest.raises(UntrustedImage, match=r"recorded changes of an engine's pods cannot be read: .*template"):
        with_pod_changes(argo(then), {"template": {"container": "engine"}})
    engine = Engine(version="7", digest="d" * 64, model="support-llm", image=SIDECAR, pods=recorded)
    as_recorded = rendering(now, argo(now), "eu-west-1")(engine)[-1]
    as_now = rendering(now, argo(now), "eu-west-1")(engine.model_copy(update={"pods": None}))[-1]
    names = [[each["name"] for each in it["spec"]["template"]["spec"]["containers"]] for it in (as_recorded, as_now)]
    assert names == [["engine", "exporter"], ["engine"]]
