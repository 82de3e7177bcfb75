"""Patches of theirs: applied last, and never to what is a delivery's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.fleet import fleet_spec, release
from fakes.schemas import problems_in
from hypothesis import given
from hypothesis import strategies as st

from rollouts.manifests.patches import PatchSpec, apply_patches, touched
from rollouts.manifests.render import render
from tidegate.core.errors import UsageError
from tidegate.core.model import Json

IMAGE = "registry.example.com/exporter@sha256:" + "1" * 64
HARDENED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def patch(kind: str, *operations: Json) -> Json:
    return {"target": {"kind": kind}, "json6902": list(operations)}


def add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Json:
    return {"op": "remove", "path": path}


def pod(path: str, value: Any) -> Json:
    """A patch of one place of the Rollout's pod template."""
    return patch("Rollout", add(f"/spec/template{path}", value))


def engine(path: str, value: Any) -> Json:
    return pod(f"/spec/containers/0{path}", value)


SIDECAR = patch(
    "Rollout",
    add("/spec/template/spec/containers/0/env/-", {"name": "NCCL_DEBUG", "value": "INFO"}),
    add("/spec/template/spec/containers/-", {"name": "exporter", "image": IMAGE, "securityContext": HARDENED}),
    add("/spec/template/spec/volumes/-", {"name": "certificates", "secret": {"secretName": "mesh"}}),
    add("/spec/template/metadata/annotations/sidecar.istio.io~1inject", "false"),
)


def rendered(*patches: Json, **changes: Any) -> tuple[Json, ...]:
    return render(fleet_spec(patches=list(patches), **changes), release(driver=True))


def one(objects: tuple[Json, ...], kind: str, name: str = "support-llm") -> Json:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pod_of(objects: tuple[Json, ...]) -> Json:
    found: Json = one(objects, "Rollout")["spec"]["template"]
    return found


def conflict(*patches: Json) -> str:
    parsed = [PatchSpec.model_validate(each) for each in patches]
    _, (found,) = apply_patches(parsed, render(fleet_spec(), release(driver=True)))
    return f"{'.'.join(map(str, found.where))}: {found.found}; {found.expected}"


def test_containers_variables_and_volumes_are_added() -> None:
    plain, patched = pod_of(rendered()), pod_of(rendered(SIDECAR))
    ours, theirs = patched["spec"]["containers"]
    assert ours == {**plain["spec"]["containers"][0], "env": [*plain["spec"]["containers"][0]["env"], ours["env"][-1]]}
    assert ours["env"][-1] == {"name": "NCCL_DEBUG", "value": "INFO"}
    assert theirs["image"] == IMAGE
    assert [each["name"] for each in patched["spec"]["volumes"]] == [
        "shared-memory",
        "scratch",
        "model-cache",
        "certificates",
    ]
    assert patched["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    assert [problems_in(each) for each in rendered(SIDECAR) if problems_in(each)] == []


def test_a_target_without_a_name_is_every_object_of_the_kind() -> None:
    found = [
        each
        for each in rendered(patch("Service", add("/metadata/annotations", {"team": "chat"})))
        if each["kind"] == "Service"
    ]
    assert [each["metadata"]["annotations"] for each in found] == [{"team": "chat"}] * 2


def test_a_target_without_a_kind_is_every_object() -> None:
    found = rendered({"json6902": [add("/metadata/labels/cost-center", "a7")]})
    assert {each["metadata"]["labels"]["cost-center"] for each in found} == {"a7"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (engine("/image", "x"), "0.json6902.0.path: spec.template.spec.containers[engine].image"),
        (engine("/args", ["--port", "1"]), "args of Rollout support-llm, which is a delivery's; `engine.vllm.args`"),
        (engine("/resources", {"limits": {"nvidia.com/gpu": "8"}}), "`engine.accelerator_count`"),
        (pod("/spec/terminationGracePeriodSeconds", 1), "`fleet.pod.drain`"),
        (pod("/spec/serviceAccountName", "admin"), "`fleet.pod.service_account`"),
        (pod("/spec/volumes/2", {"name": "model-cache", "hostPath": {"path": "/"}}), "spec.volumes[model-cache]"),
        (pod("/metadata/labels/tidegate.dev~1delivery", "other"), "metadata.labels.tidegate.dev/delivery"),
        (pod("/metadata/annotations/tidegate.dev~1attempt", "9"), "a key of your own"),
        (patch("Service", add("/spec/selector", {"a": "b"})), "spec.selector of Service"),
        (patch("Role", add("/rules", [])), "rules of Role"),
    ],
)
def test_what_is_a_deliverys_is_refused(changed: Json, told: str) -> None:
    assert told in conflict(changed)


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (
            {"op": "add", "path": "/spec/template/spec/containers/0", "value": {"name": "first", "image": "x"}},
            "containers[",
        ),
        ({"op": "remove", "path": "/spec/nothing"}, "an operation that Rollout support-llm takes"),
        ({"op": "test", "path": "/spec/revisionHistoryLimit", "value": 3}, "test /spec/revisionHistoryLimit: "),
    ],
)
def test_operations_too(operation: Json, told: str) -> None:
    refused = conflict({"target": {"kind": "Rollout"}, "json6902": [operation]})
    assert refused.startswith("0.json6902.0.path: ") and told in refused


def test_weights_of_a_route_are_a_deliverys() -> None:
    operation = {"op": "replace", "path": "/spec/rules/0/backendRefs/1/weight", "value": 100}
    assert "which is a delivery's; `stages`" in conflict({"target": {"kind": "HTTPRoute"}, "json6902": [operation]})


def test_rendering_refuses_it_too() -> None:
    with pytest.raises(UsageError, match=r"fleet.patches\[1\]: found .*image of Rollout support-llm"):
        rendered(SIDECAR, engine("/image", "x"))


def places(seen: Any, path: str = "") -> Iterator[str]:
    """Every place of an object, as a pointer."""
    if path:
        yield path
    items = seen.items() if isinstance(seen, dict) else enumerate(seen) if isinstance(seen, list) else ()
    for key, value in items:
        yield from places(value, f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}")


ALL = render(fleet_spec(admission=True), release(driver=True))
KINDS = sorted({each["kind"] for each in ALL})
pointers = st.sampled_from(sorted({place for each in ALL for place in places(each)}))
values = st.none() | st.sampled_from(["a", "engine", "8"]) | st.lists(st.fixed_dictionaries({"name": st.just("x")}))
operations = st.builds(add, pointers, values) | st.builds(remove, pointers)


@given(st.lists(operations, min_size=1, max_size=3), st.sampled_from(KINDS))
def test_whatever_a_patch_says_a_delivery_keeps_what_is_its(said: list[Json], kind: str) -> None:
    found, _ = apply_patches([PatchSpec.model_validate(patch(kind, *said))], ALL)
    for before, after in zip(ALL, found, strict=True):
        assert list(touched(before, after)) == []
