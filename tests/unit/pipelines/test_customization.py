"""Patches in a spec: told with file, line and field before anything is rendered, and a part of what makes an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.plan.customization import customization_conflicts
from pipelines.plan.engines import engine_changes, record_of
from pipelines.plan.pods import pod_changes, with_pod_changes
from pipelines.plan.region_objects import rendering
from pipelines.spec.delivery import Delivery
from registry.model import EngineRecord, ModelVersion
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.spec import SpecError, parse_spec

EXAMPLE = (Path(__file__).parents[3] / "examples/kubernetes/delivery.yaml").read_text()
LAST = "  pod: {python: /opt/engine/bin/python}\n"
SIDECAR = "registry.example.com/exporter@sha256:" + "1" * 64
POD = f"""\
  patches:
    - target: {{kind: Rollout}}
      patch:
        spec:
          template:
            spec:
              containers:
                - {{name: engine, env: [{{name: NCCL_DEBUG, value: INFO}}]}}
                - {{name: exporter, image: '{SIDECAR}'}}
    - target: {{kind: Service, name: support-llm-stable}}
      json6902:
        - {{op: add, path: /metadata/annotations, value: {{team: chat}}}}
"""
VERSION = ModelVersion(name="support-llm", version="7", digest="d" * 64, files={"config.json": "c" * 64}, size_bytes=1)


def delivery(more: str = POD, repositories: tuple[str, ...] = ()) -> Delivery:
    text = EXAMPLE.replace(LAST, LAST + more)
    return parse_spec(
        text, Delivery, file="delivery.yaml", also=lambda spec: customization_conflicts(spec, repositories)
    )


def refused(before: str, after: str, **more: tuple[str, ...]) -> str:
    assert before in POD
    with pytest.raises(SpecError) as error:
        delivery(POD.replace(before, after), **more)
    (problem,) = error.value.problems
    line = EXAMPLE.splitlines().index(LAST.rstrip()) + 1
    return str(problem).replace(f":{problem.line}:", f":+{problem.line - line}:", 1)


def argo(spec: Delivery) -> ArgoFleetSpec:
    assert isinstance(spec.fleet, ArgoFleetSpec)
    return spec.fleet


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "name: NCCL_DEBUG",
            "name: HOME",
            "delivery.yaml:+8: fleet.patches[0].patch.spec.template.spec.containers[0].env[0]: found "
            "spec.template.spec.containers[engine].env[HOME] of Rollout support-llm, which is a delivery's; "
            "expected another variable",
        ),
        (
            "name: support-llm-stable",
            "name: support-llm",
            "delivery.yaml:+10: fleet.patches[1].target.name: found support-llm, which no rendered Service is called; "
            "expected support-llm-canary or support-llm-stable",
        ),
        ("kind: Service", "kind: Secret", "delivery.yaml:+10: fleet.patches[1].target.kind: found Secret, of which"),
        (
            "/metadata/annotations",
            "/spec/selector",
            "delivery.yaml:+12: fleet.patches[1].json6902[0].path: found spec.selector of Service support-llm-stable",
        ),
        ("env: [", "imagePulPolicy: [", 'imagePulPolicy of Rollout support-llm: unknown field "imagePulPolicy"; did'),
        ("op: add", "op: put", "delivery.yaml:+12: fleet.patches[1].json6902[0].op: found 'put'; expected"),
        ("op: add, ", "op: remove, ", "json6902[0]: found"),
        ("      patch:", "      json6902: [{op: remove, path: /x}]\n      patch:", "either `patch` or `json6902`"),
    ],
)
def test_a_patch_that_cannot_be_is_told_with_its_line(before: str, after: str, told: str) -> None:
    assert told in refused(before, after)


def test_images_come_from_where_engines_may_come_from() -> None:
    assert delivery(repositories=("registry.example.com/*",))
    told = refused("NCCL_DEBUG", "NCCL_DEBUG", repositories=("registry.example.com/engines/*",))
    assert told.startswith(f"delivery.yaml:+2: fleet.patches[0]: found a container of {SIDECAR}; expected an image by")


def test_a_patch_of_pods_makes_another_engine_and_others_do_not() -> None:
    plain, patched = (record_of(delivery(more), VERSION, {}) for more in ("", POD))
    only_service = record_of(delivery("  patches:\n" + POD[POD.index("    - target: {kind: Service") :]), VERSION, {})
    labelled = record_of(delivery("  labels: {team: chat}\n"), VERSION, {})
    assert (plain.pods, plain.fingerprint) == ({}, only_service.fingerprint)
    assert len({plain.fingerprint, patched.fingerprint, labelled.fingerprint}) == 3
    assert EngineRecord.kept(patched.json_text) == patched
    (change,) = engine_changes(plain, patched)
    assert change.startswith("fleet.patches: default -> ")


def test_an_engine_is_started_again_with_the_patches_that_it_had() -> None:
    now, then = delivery(""), delivery()
    recorded = pod_changes(argo(then))
    assert pod_changes(with_pod_changes(argo(now), recorded)) == recorded
    assert with_pod_changes(argo(then), {}).patches == argo(then).patches[1:]
    engine = Engine(version="7", digest="d" * 64, model="support-llm", image=SIDECAR, pods=recorded)
    as_recorded = rendering(now, argo(now), "eu-west-1")(engine)[-1]
    as_now = rendering(now, argo(now), "eu-west-1")(engine.model_copy(update={"pods": None}))[-1]
    names = [[each["name"] for each in it["spec"]["template"]["spec"]["containers"]] for it in (as_recorded, as_now)]
    assert names == [["engine", "exporter"], ["engine"]]
