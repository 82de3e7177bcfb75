"""Patches in a spec: told with file, line and field before anything is rendered, and a part of what makes an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.adapters.specs import read_spec
from pipelines.errors import UntrustedImage
from pipelines.plan.customization import customization_conflicts
from pipelines.plan.engines import engine_changes, pod_changes, record_of, with_pod_changes
from pipelines.plan.region_objects import rendering
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trust
from registry.model import ModelVersion, Serving
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.spec import SpecError, parse_spec

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


def refused(before: str, after: str, **allowed: tuple[str, ...]) -> str:
    assert before in POD
    with pytest.raises(SpecError) as error:
        delivery(POD.replace(before, after), **allowed)
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
            "env/-, value: {name: NCCL_DEBUG",
            "env/0, value: {name: NCCL_DEBUG",
            "delivery.yaml:+4: fleet.patches[0].json6902[0].path: found spec.template.spec.containers[engine].env",
        ),
        (
            "name: support-llm-stable",
            "name: support-llm",
            "delivery.yaml:+6: fleet.patches[1].target.name: found support-llm, which no rendered Service is called; "
            "expected support-llm-canary or support-llm-stable",
        ),
        ("kind: Service", "kind: Secret", "delivery.yaml:+6: fleet.patches[1].target.kind: found Secret, of which"),
        (
            "/metadata/annotations",
            "/spec/selector",
            "delivery.yaml:+8: fleet.patches[1].json6902[0].path: found spec.selector of Service support-llm-stable",
        ),
        (
            "op: add, path: /metadata",
            "op: put, path: /metadata",
            "delivery.yaml:+8: fleet.patches[1].json6902[0].op: found 'put'",
        ),
        ("op: add, path: /metadata", "op: remove, path: /metadata", "json6902[0].path: found remove /metadata"),
    ],
)
def test_a_patch_that_cannot_be_is_told_with_its_line(before: str, after: str, told: str) -> None:
    assert told in refused(before, after)


def test_images_come_from_where_engines_may_come_from() -> None:
    assert delivery(images=("registry.example.com/*",))
    told = refused("NCCL_DEBUG", "NCCL_DEBUG", images=("registry.example.com/engines/*",))
    assert told.startswith(f"delivery.yaml:+2: fleet.patches[0]: found a container of {SIDECAR}; expected an image by")


@pytest.mark.parametrize(
    "reads",
    [
        "volumes/-, value: {name: v, secret: {secretName: clusters}}",
        "volumes/-, value: {name: v, csi: {driver: d, nodePublishSecretRef: {name: clusters}}}",
        "imagePullSecrets, value: [{name: clusters}]",
        "containers/0/env/-, value: {name: A, valueFrom: {secretKeyRef: {name: clusters, key: a}}}",
    ],
)
def test_pods_read_no_secret_but_those_that_the_operator_names(reads: str) -> None:
    operation = f"{{op: add, path: /spec/template/spec/{reads}}}"
    patch = f"  patches:\n    - target: {{kind: Rollout}}\n      json6902: [{operation}]\n"
    with pytest.raises(SpecError, match=r"the Secret clusters; expected none, or clusters under `spec\.secrets`"):
        delivery(patch)
    assert delivery(patch, secrets=("clusters",))


def test_nor_by_a_patch_of_what_another_one_brought() -> None:
    value = "[{name: A, valueFrom: {secretKeyRef: {name: clusters, key: a}}}]"
    op = f"{{op: add, path: /spec/template/spec/containers/1/env, value: {value}}}"
    target = "    - target: {kind: Service"
    told = refused(target, f"    - target: {{kind: Rollout}}\n      json6902: [{op}]\n{target}")
    assert "fleet.patches[1]: found the Secret clusters; expected none" in told


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


def test_pods_are_changed_by_the_operators_word_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, path = tmp_path / "operator.yaml", tmp_path / "delivery.yaml"
    path.write_text(EXAMPLE.replace(LAST, LAST + POD))
    monkeypatch.setenv("TIDEGATE_TRUST", str(operator))
    operator.write_text("kind: Trust\n")
    with pytest.raises(SpecError) as error:
        read_spec(path)
    (told,) = (str(problem).partition(": ")[2] for problem in error.value.problems)
    assert told == "fleet.patches: found a change of pods; expected none, or `spec.pods: true` in trust.yaml"
    operator.write_text("spec: {pods: true}\n")
    assert argo(read_spec(path)).patches
    operator.write_text("spec: {pods: true}\nengines: {images: [registry.example.com/engines/*]}\n")
    with pytest.raises(SpecError, match=r"fleet\.patches\[0\]: found a container of "):
        read_spec(path)
