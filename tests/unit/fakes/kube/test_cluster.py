"""The plain Python side: what controllers and tests stand on."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.kinds import Kind, kind_of
from fakes.kube.refusal import Refusal
from fakes.kube.simulated_time import SimulatedTime
from fakes.kube.store import Event

from rollouts.kube.model import EVERYWHERE
from rollouts.kube.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICA_SETS, ROLLOUTS

Json = dict[str, Any]


def note(name: str) -> Json:
    return {"metadata": {"name": name}, "data": {"x": "1"}}


def test_answers_are_copies(cluster: FakeCluster) -> None:
    one = cluster.create(CONFIG_MAPS, note("a"))
    one["data"]["x"] = "changed"
    cluster.get(CONFIG_MAPS, "a")["data"]["x"] = "changed"
    cluster.list(CONFIG_MAPS)[0]["data"]["x"] = "changed"
    assert cluster.get(CONFIG_MAPS, "a")["data"] == {"x": "1"}


def test_the_same_calls_give_the_same_cluster() -> None:
    def build() -> list[Json]:
        cluster = FakeCluster(time=SimulatedTime())
        for name in ("a", "b"):
            cluster.create(CONFIG_MAPS, note(name))
        cluster.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}})
        return cluster.list(CONFIG_MAPS)

    assert build() == build()


def test_listeners_hear_everything_in_order_even_what_they_cause(cluster: FakeCluster) -> None:
    """As informers do: each sees one order, whoever else reacts meanwhile."""
    heard: list[str] = []

    def reacts(event: Event) -> None:
        if event.name == "a" and event.change == "ADDED":
            cluster.create(CONFIG_MAPS, note("b"))

    cluster.on_change(reacts)
    end = cluster.on_change(lambda event: heard.append(f"{event.change} {event.name}"))
    cluster.create(CONFIG_MAPS, note("a"))
    cluster.delete(CONFIG_MAPS, "a")
    end()
    cluster.delete(CONFIG_MAPS, "b")
    assert heard == ["ADDED a", "ADDED b", "DELETED a"]


def test_edit_reads_changes_and_writes(cluster: FakeCluster) -> None:
    cluster.create(CONFIG_MAPS, note("a"))
    cluster.edit(CONFIG_MAPS, "a", lambda found: found["data"].update(y="2"))
    assert cluster.get(CONFIG_MAPS, "a")["data"] == {"x": "1", "y": "2"}


def test_a_list_is_of_one_namespace_or_of_all(cluster: FakeCluster) -> None:
    cluster.create_namespace("other")
    cluster.create(CONFIG_MAPS, note("a"))
    cluster.create(CONFIG_MAPS, note("b"), namespace="other")
    assert [one["metadata"]["name"] for one in cluster.list(CONFIG_MAPS)] == ["a"]
    assert len(cluster.list(CONFIG_MAPS, namespace=EVERYWHERE)) == 2


def test_a_kind_without_namespace_is_in_none(cluster: FakeCluster) -> None:
    node = cluster.create(NODES, {"metadata": {"name": "gpu-1", "namespace": "llm"}})
    assert "namespace" not in node["metadata"]
    assert cluster.get(NODES, "gpu-1") == node


def test_the_whole_chain_of_dependents_goes(cluster: FakeCluster) -> None:
    def under(owner: Json) -> Json:
        return {"ownerReferences": [{"kind": owner["kind"], "name": "a", "uid": owner["metadata"]["uid"]}]}

    rollout = cluster.create(ROLLOUTS, {"metadata": {"name": "chat"}, "spec": {}})
    replica_set = cluster.create(REPLICA_SETS, {"metadata": {"name": "chat-1"} | under(rollout), "spec": {}})
    cluster.create(PODS, {"metadata": {"name": "chat-1-x"} | under(replica_set)})
    cluster.delete(ROLLOUTS, "chat")
    assert cluster.list(REPLICA_SETS) == cluster.list(PODS) == []


def test_orphans_stay(cluster: FakeCluster) -> None:
    owner = cluster.create(DEPLOYMENTS, {"metadata": {"name": "a"}, "spec": {}})
    reference = {"kind": "Deployment", "name": "a", "uid": owner["metadata"]["uid"]}
    cluster.create(PODS, {"metadata": {"name": "x", "ownerReferences": [reference]}})
    cluster.delete(DEPLOYMENTS, "a", propagation="Orphan")
    assert (
        "ownerReferences" not in cluster.get(PODS, "x")["metadata"]
        or not cluster.get(PODS, "x")["metadata"]["ownerReferences"]
    )


def test_a_namespace_goes_with_everything_in_it(cluster: FakeCluster) -> None:
    cluster.create_namespace("other")
    cluster.create(CONFIG_MAPS, note("a"), namespace="other")
    cluster.create(CONFIG_MAPS, note("a"))
    cluster.delete(NAMESPACES, "other")
    assert [one["metadata"]["namespace"] for one in cluster.list(CONFIG_MAPS, namespace=EVERYWHERE)] == ["llm"]


def test_admission_may_refuse(cluster: FakeCluster) -> None:
    """A quota, or a webhook."""

    def refuse(verb: str, kind: Kind, body: Json) -> None:
        if verb == "create" and kind.plural == "pods":
            raise Refusal(403, "Forbidden", "exceeded quota: gpus")

    cluster.admission.append(refuse)
    with pytest.raises(Refusal, match="exceeded quota"):
        cluster.create(PODS, {"metadata": {"name": "x"}})
    cluster.create(CONFIG_MAPS, note("a"))


async def test_a_kind_that_is_not_installed_has_no_path(cluster: FakeCluster, http: httpx.AsyncClient) -> None:
    path = "/apis/argoproj.io/v1alpha1/namespaces/llm/rollouts"
    assert (await http.get(path)).status_code == 200
    cluster.uninstall(ROLLOUTS)
    answer = await http.get(path)
    assert answer.status_code == 404
    assert answer.json()["message"] == "the server could not find the requested resource"
    cluster.install(kind_of(ROLLOUTS))
    assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("path", "key"),
    [("/api", "versions"), ("/apis", "groups"), ("/apis/argoproj.io", "versions"), ("/apis/apps/v1", "resources")],
)
async def test_discovery_lists_what_is_served(http: httpx.AsyncClient, path: str, key: str) -> None:
    assert (await http.get(path)).json()[key]


async def test_plain_texts_and_a_skewed_clock(http: httpx.AsyncClient, api: Api) -> None:
    path = "/api/v1/namespaces/argo-rollouts/services/metrics:8090/proxy/metrics"
    api.texts[path] = lambda: "rollout_reconcile_error 3\n"
    api.clock_skew_seconds = 90
    answer = await http.get(path)
    assert answer.text == "rollout_reconcile_error 3\n"
    assert answer.headers["date"] == "Thu, 01 Jan 2026 00:01:30 GMT"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("PATCH", "/api/v1/namespaces/llm/configmaps/a", 415),
        ("PUT", "/api/v1/namespaces/llm/configmaps/none", 400),
        ("DELETE", "/api/v1/namespaces/llm/configmaps", 405),
        ("GET", "/api/v1/namespaces/llm/configmaps/a/status", 404),
        ("GET", "/apis/argoproj.io/v1beta1/namespaces/llm/rollouts", 404),
    ],
)
async def test_what_makes_no_sense_is_refused(
    http: httpx.AsyncClient, cluster: FakeCluster, method: str, path: str, code: int
) -> None:
    cluster.create(CONFIG_MAPS, note("a"))
    answer = await http.request(method, path, json={})
    assert (answer.status_code, answer.json()["code"]) == (code, code)


async def test_a_page_of_a_forgotten_moment_has_expired(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    for name in "abc":
        cluster.create(CONFIG_MAPS, note(name))
    path = "/api/v1/namespaces/llm/configmaps"
    first = (await http.get(path, params={"limit": "1"})).json()
    cluster.create(CONFIG_MAPS, note("d"))
    cluster.store.compact()
    second = await http.get(path, params={"limit": "1", "continue": first["metadata"]["continue"]})
    assert (second.status_code, second.json()["reason"]) == (410, "Expired")
