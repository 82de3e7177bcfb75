"""The official Python client against the fake: a client that is not ours sees an API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.kube.access import TOKEN
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import FakeServers, serving
from fakes.kube.simulated_time import RealTime
from kubernetes import client as official
from kubernetes import config, watch
from kubernetes.client.exceptions import ApiException

from rollouts.kube.resources import CONFIG_MAPS

GROUP = {"group": "argoproj.io", "version": "v1alpha1", "namespace": "llm", "plural": "rollouts"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServers]:
    api = Api(FakeCluster(namespace="llm", time=RealTime()))
    api.access.require(TOKEN)
    with serving({"eu-west-1": api}, tmp_path_factory.mktemp("clusters"), namespace="llm") as running:
        yield running


@pytest.fixture(scope="module")
def api(servers: FakeServers) -> Iterator[official.ApiClient]:
    with config.new_client_from_config(str(servers.kubeconfig), context="eu-west-1") as api:
        yield api


def note(name: str) -> official.V1ConfigMap:
    return official.V1ConfigMap(metadata=official.V1ObjectMeta(name=name, labels={"app": "chat"}), data={"x": "1"})


def test_typed_objects_go_out_and_come_back(api: official.ApiClient) -> None:
    core = official.CoreV1Api(api)
    created = core.create_namespaced_config_map("llm", note("typed"))
    created.data["x"] = "2"
    core.replace_namespaced_config_map("typed", "llm", created)
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("typed", "llm", created)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    found = core.list_namespaced_config_map("llm", label_selector="app=chat", limit=1)
    assert [one.data for one in found.items] == [{"x": "2"}]


def test_custom_objects_have_a_status_of_their_own(api: official.ApiClient) -> None:
    custom = official.CustomObjectsApi(api)
    custom.create_namespaced_custom_object(
        **GROUP,
        body={
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Rollout",
            "metadata": {"name": "chat"},
            "spec": {"replicas": 1},
        },
    )
    api.default_headers["Content-Type"] = "application/merge-patch+json"
    try:
        after = custom.patch_namespaced_custom_object_status(**GROUP, name="chat", body={"status": {"abort": True}})
    finally:
        del api.default_headers["Content-Type"]
    assert (after["status"], after["metadata"]["generation"]) == ({"abort": True}, 1)


def test_its_watch_follows_changes_and_ends_in_time(api: official.ApiClient, servers: FakeServers) -> None:
    cluster = servers.api("eu-west-1").cluster
    servers.do(lambda: cluster.create(CONFIG_MAPS, {"metadata": {"name": "watched"}, "data": {"x": "1"}}))
    told = []
    follow = watch.Watch().stream(
        official.CoreV1Api(api).list_namespaced_config_map,
        "llm",
        field_selector="metadata.name=watched",
        timeout_seconds=2,
    )
    for event in follow:
        told.append((event["type"], event["object"].data["x"]))
        if len(told) == 1:
            servers.do(lambda: cluster.patch(CONFIG_MAPS, "watched", {"data": {"x": "2"}}))
    assert told == [("ADDED", "1"), ("MODIFIED", "2")]


def test_an_access_review_is_answered(api: official.ApiClient) -> None:
    attributes = official.V1ResourceAttributes(verb="patch", group="argoproj.io", resource="rollouts", namespace="llm")
    spec = official.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    review = official.V1SelfSubjectAccessReview(spec=spec)
    assert official.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed
