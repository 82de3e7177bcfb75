"""Who owns what after which write, in the cases that tidegate meets."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from fakes.kube.cluster import FakeCluster
from fakes.kube.field_paths import from_fields, leaves, to_fields, written
from fakes.kube.refusal import Refusal

from rollouts.kube.model import PatchKind
from rollouts.kube.resources import CONFIG_MAPS, HTTP_ROUTES, ROLLOUTS, SERVICES

Json = dict[str, Any]

ROLLOUT: Json = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Rollout",
    "metadata": {"name": "chat", "labels": {"app": "chat"}},
    "spec": {
        "replicas": 3,
        "template": {
            "spec": {
                "containers": [
                    {"name": "engine", "image": "engine:1", "ports": [{"containerPort": 8000, "name": "http"}]}
                ]
            }
        },
    },
}


def owned(body: Json, manager: str, operation: str = "Update") -> set[str]:
    """The paths of one owner, as conflicts write them."""
    for entry in body["metadata"]["managedFields"]:
        if (entry["manager"], entry["operation"]) == (manager, operation):
            return {written(path) for path in from_fields(entry["fieldsV1"])}
    return set()


def with_image(image: str) -> Json:
    changed = deepcopy(ROLLOUT)
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return changed


def test_paths_are_written_as_managed_fields_and_read_back() -> None:
    fields = to_fields(leaves(ROLLOUT))
    container = fields["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"engine"}']
    assert container["."] == {} and container["f:image"] == {}
    assert container["f:ports"]['k:{"containerPort":8000,"protocol":"TCP"}']["f:name"] == {}
    assert from_fields(fields) == set(leaves(ROLLOUT))


def test_who_creates_owns_everything_and_who_patches_what_it_patched(cluster: FakeCluster) -> None:
    cluster.create(ROLLOUTS, ROLLOUT, manager="ci")
    after = cluster.patch(ROLLOUTS, "chat", {"spec": {"replicas": 5}}, manager="hpa")
    assert owned(after, "hpa") == {".spec.replicas"}
    assert ".spec.replicas" not in owned(after, "ci")
    assert '.spec.template.spec.containers[name="engine"].image' in owned(after, "ci")


def test_who_takes_a_field_away_owns_nothing_by_that(cluster: FakeCluster) -> None:
    cluster.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}, manager="ci")
    after = cluster.patch(CONFIG_MAPS, "a", {"data": {"x": None}}, manager="ops")
    assert (owned(after, "ci"), owned(after, "ops")) == ({".data.y"}, set())


def test_a_conflict_names_the_owner_and_the_field(cluster: FakeCluster) -> None:
    cluster.apply(ROLLOUTS, ROLLOUT, manager="tidegate")
    cluster.patch(ROLLOUTS, "chat", {"spec": {"replicas": 5}}, manager="hpa")
    with pytest.raises(Refusal) as caught:
        cluster.apply(ROLLOUTS, ROLLOUT, manager="tidegate")
    said = 'Apply failed with 1 conflict: conflict with "hpa" using argoproj.io/v1alpha1: .spec.replicas'
    assert (caught.value.code, caught.value.reason, caught.value.message) == (409, "Conflict", said)
    assert [(cause.reason, cause.field) for cause in caught.value.causes] == [
        ("FieldManagerConflict", ".spec.replicas")
    ]


def test_force_takes_the_field_over(cluster: FakeCluster) -> None:
    cluster.apply(ROLLOUTS, ROLLOUT, manager="tidegate")
    cluster.patch(ROLLOUTS, "chat", {"spec": {"replicas": 5}}, manager="hpa")
    after = cluster.apply(ROLLOUTS, ROLLOUT, manager="tidegate", force=True)
    assert after["spec"]["replicas"] == 3
    assert owned(after, "hpa") == set()


def test_a_field_left_to_another_is_not_fought_over(cluster: FakeCluster) -> None:
    cluster.apply(ROLLOUTS, ROLLOUT, manager="tidegate")
    cluster.patch(ROLLOUTS, "chat", {"spec": {"replicas": 5}}, manager="hpa")
    without = with_image("engine:2")
    del without["spec"]["replicas"]
    after = cluster.apply(ROLLOUTS, without, manager="tidegate")
    assert after["spec"]["replicas"] == 5
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "engine:2"


def test_two_who_want_the_same_own_it_together(cluster: FakeCluster) -> None:
    cluster.apply(ROLLOUTS, ROLLOUT, manager="tidegate")
    shared = cluster.apply(ROLLOUTS, {**ROLLOUT, "spec": {"replicas": 3}}, manager="ops")
    assert ".spec.replicas" in owned(shared, "tidegate", "Apply") & owned(shared, "ops", "Apply")
    left = with_image("engine:1")
    del left["spec"]["replicas"]
    assert cluster.apply(ROLLOUTS, left, manager="tidegate")["spec"]["replicas"] == 3


def test_the_same_name_owns_apart_what_it_applied_and_what_it_patched(cluster: FakeCluster) -> None:
    cluster.create(ROLLOUTS, ROLLOUT, manager="tidegate")
    with pytest.raises(Refusal, match='conflict with "tidegate"'):
        cluster.apply(ROLLOUTS, with_image("engine:2"), manager="tidegate")


def test_rules_of_a_route_are_one_value_so_weights_of_a_plugin_are_a_conflict(cluster: FakeCluster) -> None:
    """gateway-api: `spec.rules` is atomic; whoever sets a weight owns all rules from then on."""
    backends = [{"name": "chat-stable", "port": 80, "weight": 100}, {"name": "chat-canary", "port": 80, "weight": 0}]
    route: Json = {"metadata": {"name": "chat"}, "spec": {"rules": [{"backendRefs": backends}]}}
    cluster.apply(HTTP_ROUTES, route, manager="tidegate")

    def shift(found: Json) -> None:
        found["spec"]["rules"][0]["backendRefs"][1]["weight"] = 5

    cluster.edit(HTTP_ROUTES, "chat", shift, manager="gatewayapi")
    with pytest.raises(
        Refusal, match=r'conflict with "gatewayapi" using gateway\.networking\.k8s\.io/v1: \.spec\.rules'
    ):
        cluster.apply(HTTP_ROUTES, route, manager="tidegate")


def test_a_selector_that_a_controller_changed_is_a_conflict_too(cluster: FakeCluster) -> None:
    """The Rollouts controller writes the pod hash into the Services' selectors (`rollout/service.go`)."""
    service: Json = {
        "metadata": {"name": "chat-stable"},
        "spec": {"selector": {"app": "chat"}, "ports": [{"port": 80}]},
    }
    cluster.apply(SERVICES, service, manager="tidegate")
    added = {"spec": {"selector": {"rollouts-pod-template-hash": "abc"}}}
    cluster.patch(SERVICES, "chat-stable", added, manager="rollouts-controller")
    with pytest.raises(Refusal, match=r'conflict with "rollouts-controller" using v1: \.spec\.selector'):
        cluster.apply(SERVICES, service, manager="tidegate")
    after = cluster.apply(SERVICES, service, manager="tidegate", force=True)
    assert after["spec"]["selector"] == {"app": "chat"}


def test_an_item_that_is_applied_no_more_goes_from_its_list(cluster: FakeCluster) -> None:
    two = with_image("engine:1")
    two["spec"]["template"]["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})
    cluster.apply(ROLLOUTS, two, manager="tidegate")
    after = cluster.apply(ROLLOUTS, ROLLOUT, manager="tidegate")
    assert [one["name"] for one in after["spec"]["template"]["spec"]["containers"]] == ["engine"]


def test_an_item_of_which_somebody_else_owns_a_part_stays_with_that_part(cluster: FakeCluster) -> None:
    two = with_image("engine:1")
    two["spec"]["template"]["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})
    cluster.apply(ROLLOUTS, two, manager="tidegate")

    def touch(found: Json) -> None:
        found["spec"]["template"]["spec"]["containers"][1]["tty"] = True

    cluster.edit(ROLLOUTS, "chat", touch, manager="ops")
    after = cluster.apply(ROLLOUTS, ROLLOUT, manager="tidegate")
    assert after["spec"]["template"]["spec"]["containers"][1] == {"name": "proxy", "tty": True}


def test_the_status_is_applied_and_owned_by_its_own_door(cluster: FakeCluster) -> None:
    cluster.apply(ROLLOUTS, {**ROLLOUT, "status": {"abort": True}}, manager="tidegate")
    assert "status" not in cluster.get(ROLLOUTS, "chat")
    body: Json = {"metadata": {"name": "chat"}, "spec": {"replicas": 9}, "status": {"abort": True}}
    after = cluster.patch(ROLLOUTS, "chat", body, kind=PatchKind.APPLY, subresource="status", manager="tidegate")
    assert (after["spec"]["replicas"], after["status"]) == (3, {"abort": True})
    entries = [(entry["manager"], entry.get("subresource")) for entry in after["metadata"]["managedFields"]]
    assert entries == [("tidegate", None), ("tidegate", "status")]


def test_managed_fields_cannot_be_applied(cluster: FakeCluster) -> None:
    body: Json = {"metadata": {"name": "a", "managedFields": [{"manager": "x"}]}, "data": {}}
    with pytest.raises(Refusal, match="managedFields must be nil"):
        cluster.apply(CONFIG_MAPS, body, manager="tidegate")
