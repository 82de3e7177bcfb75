"""Who owns what after which write, in the cases that tidegate meets."""

from __future__ import annotations

from copy import deepcopy

import pytest
from fakes.kube.cluster import FakeCluster
from fakes.kube.ownership import from_fields, written
from fakes.kube.refusal import Refusal

from rollouts.kube.resources import HTTP_ROUTES, ROLLOUTS
from tidegate.core.model import Json

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


def test_who_creates_owns_everything_and_who_patches_what_it_patched(cluster: FakeCluster) -> None:
    cluster.create(ROLLOUTS, ROLLOUT, manager="ci")
    after = cluster.patch(ROLLOUTS, "chat", {"spec": {"replicas": 5}}, manager="hpa")
    assert owned(after, "hpa") == {".spec.replicas"}
    assert ".spec.replicas" not in owned(after, "ci")
    assert '.spec.template.spec.containers[name="engine"].image' in owned(after, "ci")


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
    """gateway-api: `spec.rules` is atomic; the one who sets a weight owns all rules from then on."""
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


def test_an_item_of_which_somebody_else_owns_a_part_stays_with_that_part(cluster: FakeCluster) -> None:
    two = with_image("engine:1")
    two["spec"]["template"]["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})
    cluster.apply(ROLLOUTS, two, manager="tidegate")

    def touch(found: Json) -> None:
        found["spec"]["template"]["spec"]["containers"][1]["tty"] = True

    cluster.edit(ROLLOUTS, "chat", touch, manager="ops")
    after = cluster.apply(ROLLOUTS, ROLLOUT, manager="tidegate")
    assert after["spec"]["template"]["spec"]["containers"][1] == {"name": "proxy", "tty": True}
