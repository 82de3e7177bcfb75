"""Patches of theirs: applied last, as Kustomize applies them, and never to what is a delivery's."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.clusters.admission import Refusing
from fakes.fleet import fleet_spec, release
from hypothesis import given
from hypothesis import strategies as st

from rollouts.manifests.customization.owned import touched
from rollouts.manifests.customization.patches import apply_patches
from rollouts.manifests.customization.spec import PatchSpec
from rollouts.manifests.render import render
from rollouts.manifests.schema import problems_in
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

DRIVER = "system:serviceaccount:serving:support-llm-driver"
IMAGE = "registry.example.com/exporter@sha256:" + "1" * 64
HARDENED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def pods(spec: Json, metadata: Json | None = None) -> Json:
    """A patch of the Rollout's pod template."""
    template = {"spec": spec, **({"metadata": metadata} if metadata else {})}
    return {"target": {"kind": "Rollout"}, "patch": {"spec": {"template": template}}}


def engine(**changes: Any) -> Json:
    return pods({"containers": [{"name": "engine", **changes}]})


SIDECAR = pods(
    {
        "containers": [
            {"name": "engine", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]},
            {"name": "exporter", "image": IMAGE, "securityContext": HARDENED},
        ],
        "volumes": [{"name": "certificates", "secret": {"secretName": "mesh"}}],
    },
    {"annotations": {"sidecar.istio.io/inject": "false"}},
)


def rendered(*patches: Json, **changes: Any) -> tuple[Json, ...]:
    return render(fleet_spec(patches=list(patches), **changes), release())


def one(objects: tuple[Json, ...], kind: str, name: str = "support-llm") -> Json:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pod_of(objects: tuple[Json, ...]) -> Json:
    found: Json = one(objects, "Rollout")["spec"]["template"]
    return found


def conflict(*patches: Json) -> str:
    parsed = [PatchSpec.model_validate(each) for each in patches]
    (found,) = apply_patches(parsed, render(fleet_spec(), release())).conflicts
    return f"{'.'.join(map(str, found.where))}: {found.found}; {found.expected}"


def test_containers_variables_and_volumes_are_merged_by_name() -> None:
    plain, pod = pod_of(rendered()), pod_of(rendered(SIDECAR))
    ours, theirs = pod["spec"]["containers"]
    assert ours == {**plain["spec"]["containers"][0], "env": [*plain["spec"]["containers"][0]["env"], ours["env"][-1]]}
    assert ours["env"][-1] == {"name": "NCCL_DEBUG", "value": "INFO"}
    assert theirs["image"] == IMAGE
    assert [each["name"] for each in pod["spec"]["volumes"]] == [
        "shared-memory",
        "scratch",
        "model-cache",
        "certificates",
    ]
    assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    assert [problems_in(each) for each in rendered(SIDECAR) if problems_in(each)] == []


def test_everything_else_is_as_it_was() -> None:
    plain, patched = rendered(), rendered(SIDECAR)
    changed = [now["kind"] for was, now in zip(plain, patched, strict=True) if was != now]
    # Policies let in what the patches bring.
    assert changed == ["ValidatingAdmissionPolicy", "Rollout"]


def test_operations_follow_one_another() -> None:
    operations = [
        {"op": "add", "path": "/spec/template/spec/runtimeClassName", "value": "nvidia"},
        {"op": "remove", "path": "/spec/template/spec/topologySpreadConstraints/1"},
        {"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"},
    ]
    plain = rendered()
    refused = conflict({"target": {"kind": "Rollout"}, "json6902": operations})
    assert refused.startswith("0.json6902.2.path: metadata.annotations."), "labels of ours are no annotations"
    pod = pod_of(rendered({"target": {"kind": "Rollout"}, "json6902": operations[:2]}))
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert pod["spec"]["topologySpreadConstraints"] == pod_of(plain)["spec"]["topologySpreadConstraints"][:1]


def test_fields_go_by_null_and_items_by_the_directive() -> None:
    patch = pods({"topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", "$patch": "delete"}]})
    patch["patch"]["spec"]["template"]["spec"]["enableServiceLinks"] = None
    pod = pod_of(rendered(patch))["spec"]
    assert [each["topologyKey"] for each in pod["topologySpreadConstraints"]] == ["topology.kubernetes.io/zone"]
    assert "enableServiceLinks" not in pod


def test_a_target_without_a_name_is_every_object_of_the_kind() -> None:
    patch = {"target": {"kind": "Service"}, "patch": {"metadata": {"annotations": {"team": "chat"}}}}
    found = [each for each in rendered(patch) if each["kind"] == "Service"]
    assert [each["metadata"]["annotations"] for each in found] == [{"team": "chat"}] * 2


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        (
            engine(image="x"),
            "0.patch.spec.template.spec.containers.0.image: spec.template.spec.containers[engine].image",
        ),
        (engine(args=["--port", "1"]), "args of Rollout support-llm, which is a delivery's; `engine.vllm.args`"),
        (engine(command=["sh"]), "containers[engine].command"),
        (engine(env=[{"name": "HOME", "value": "/root"}]), "containers.0.env.0: "),
        (engine(ports=[{"containerPort": 8000, "name": "other"}]), "containers[engine].ports[http]"),
        (engine(resources={"limits": {"nvidia.com/gpu": "8"}}), "`engine.accelerator_count`"),
        (engine(**{"$patch": "delete"}), "spec.template.spec.containers[engine] of"),
        (pods({"$patch": "replace", "containers": []}), "which is a delivery's"),
        (pods({"terminationGracePeriodSeconds": 1}), "`fleet.pod.drain`"),
        (pods({"serviceAccountName": "admin"}), "`fleet.pod.service_account`"),
        (pods({"volumes": [{"name": "model-cache", "hostPath": {"path": "/"}}]}), "spec.volumes[model-cache]"),
        (pods({}, {"labels": {DELIVERY: "other"}}), "metadata.labels.tidegate.dev/delivery"),
        (pods({}, {"annotations": {"tidegate.dev/attempt": "9"}}), "a key of your own"),
        (pods({}, {"labels": None}), "metadata.labels.tidegate.dev/delivery"),
        ({"target": {"kind": "Rollout"}, "patch": {"spec": {"replicas": 9}}}, "0.patch.spec.replicas: "),
        ({"target": {"kind": "Rollout"}, "patch": {"spec": {"strategy": {"canary": {"steps": []}}}}}, "spec.strategy"),
        ({"target": {"kind": "Rollout"}, "patch": {"metadata": {"name": "x"}}}, "0.patch.metadata.name: "),
        ({"target": {"kind": "Service"}, "patch": {"spec": {"selector": {"a": "b"}}}}, "pods of one version"),
        ({"target": {"kind": "Service"}, "patch": {"spec": {"type": "NodePort"}}}, "past all weights"),
        ({"target": {"kind": "HTTPRoute"}, "patch": {"spec": {"rules": []}}}, "spec.rules of HTTPRoute"),
        ({"target": {"kind": "Role"}, "patch": {"rules": []}}, "a Role of yours"),
        (pods({"containers": [{"image": "x"}]}), "an item that says not which one it is; an item with `name`"),
        (engine(**{"$retainKeys": ["name"]}), "the directive $retainKeys"),
    ],
)
def test_what_is_a_deliverys_is_refused_with_its_place(patch: Json, told: str) -> None:
    assert told in conflict(patch)


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (
            {"op": "add", "path": "/spec/template/spec/containers/0", "value": {"name": "first", "image": "x"}},
            "containers[",
        ),
        ({"op": "replace", "path": "/spec/rules/0/backendRefs/1/weight", "value": 100}, "replace /spec/rules"),
        ({"op": "remove", "path": "/spec/nothing"}, "remove /spec/nothing; a place that Rollout support-llm has"),
        ({"op": "test", "path": "/spec/revisionHistoryLimit", "value": 3}, "what Rollout support-llm has there"),
    ],
)
def test_operations_too(operation: Json, told: str) -> None:
    refused = conflict({"target": {"kind": "Rollout"}, "json6902": [operation]})
    assert refused.startswith("0.json6902.0.path: ") and told in refused


def test_weights_of_a_route_are_a_deliverys() -> None:
    operation = {"op": "replace", "path": "/spec/rules/0/backendRefs/1/weight", "value": 100}
    assert "a delivery moves weights" in conflict({"target": {"kind": "HTTPRoute"}, "json6902": [operation]})


def test_rendering_refuses_it_too() -> None:
    with pytest.raises(UsageError, match=r"fleet.patches\[1\]: found .*image of Rollout support-llm"):
        rendered(SIDECAR, engine(image="x"))


@pytest.mark.parametrize("changes", [{}, {"pod": {"cache": {"claim": "weights", "secret": "store"}}}])
def test_policies_let_in_what_patches_bring_and_nothing_next_to_it(changes: Json) -> None:
    objects = rendered(SIDECAR, **changes)
    wanted, policies = one(objects, "Rollout"), Refusing(objects)
    assert policies.refusals(wanted, user=DRIVER) == []
    assert Refusing(rendered(**changes)).refusals(wanted, user=DRIVER) != []
    for change in (
        {"containers": [*pod_of(objects)["spec"]["containers"], {"name": "miner", "image": IMAGE}]},
        {"volumes": [{"name": "certificates", "secret": {"secretName": "other"}}]},
        {"containers": [{**pod_of(objects)["spec"]["containers"][0], "env": [{"name": "OTHER", "value": "1"}]}]},
    ):
        template = {**pod_of(objects), "spec": {**pod_of(objects)["spec"], **change}}
        other = {**wanted, "spec": {**wanted["spec"], "template": template}}
        assert policies.refusals(other, user=DRIVER) != []


texts = st.sampled_from(["a", "engine", "x/y", "8", "tidegate.dev/version"])
values = st.recursive(
    st.none() | texts | st.integers(0, 9) | st.booleans(),
    lambda inner: st.lists(inner | st.fixed_dictionaries({"name": texts}), max_size=2) | st.dictionaries(texts, inner),
    max_leaves=4,
)
FIELDS = [
    "metadata",
    "spec",
    "template",
    "containers",
    "labels",
    "annotations",
    "volumes",
    "env",
    "strategy",
    "rules",
    "selector",
]
trees = st.recursive(values, lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3), max_leaves=6)
ALL = render(fleet_spec(), release())
KINDS = sorted({each["kind"] for each in ALL})


@given(
    st.dictionaries(st.sampled_from(FIELDS), trees, max_size=3), st.sampled_from(sorted({each["kind"] for each in ALL}))
)
def test_whatever_a_patch_says_a_delivery_keeps_what_is_its(patch: Json, kind: str) -> None:
    found = apply_patches([PatchSpec.model_validate({"target": {"kind": kind}, "patch": patch})], ALL)
    for before, after in zip(ALL, found.objects, strict=True):
        assert list(touched(before, after)) == []
