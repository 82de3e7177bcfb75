"""Unknown fields and impossible values, by what the request asks for."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fakes.kube.cluster import FakeCluster

from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, ROLLOUTS

Json = dict[str, Any]
PATH = "/apis/argoproj.io/v1alpha1/namespaces/llm/rollouts"
MERGE = {"content-type": "application/merge-patch+json"}


def rollout(**canary: Any) -> Json:
    return {"metadata": {"name": "chat"}, "spec": {"strategy": {"canary": canary}}}


WRONG = rollout(trafficRouting={"gatewayAPI": {"httpRoute": "chat"}})
"""argo-rollouts#4569."""


async def test_strict_refuses_an_unknown_field(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    answer = await http.post(PATH, json=WRONG, params={"fieldValidation": "Strict"})
    assert answer.status_code == 400
    said = 'strict decoding error: unknown field "spec.strategy.canary.trafficRouting.gatewayAPI"'
    assert said in answer.json()["message"]
    assert cluster.find(ROLLOUTS, "chat") is None


@pytest.mark.parametrize("query", [{}, {"fieldValidation": "Warn"}])
async def test_by_itself_a_server_drops_it_with_a_warning(http: httpx.AsyncClient, query: dict[str, str]) -> None:
    answer = await http.post(PATH, json=WRONG, params=query)
    assert answer.status_code == 201
    assert answer.json()["spec"]["strategy"]["canary"]["trafficRouting"] == {}
    said = '299 - "unknown field \\"spec.strategy.canary.trafficRouting.gatewayAPI\\""'
    assert answer.headers["warning"] == said


async def test_ignore_drops_it_without_a_word(http: httpx.AsyncClient) -> None:
    answer = await http.post(PATH, json=WRONG, params={"fieldValidation": "Ignore"})
    assert answer.status_code == 201 and "warning" not in answer.headers


async def test_a_patch_is_checked_like_a_whole_object(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    cluster.create(ROLLOUTS, rollout())
    answer = await http.patch(f"{PATH}/chat", json={"spec": {"pausd": True}}, headers=MERGE)
    assert answer.status_code == 200 and "pausd" not in answer.json()["spec"]
    strict = {"fieldValidation": "Strict"}
    answer = await http.patch(f"{PATH}/chat", json={"spec": {"pausd": True}}, headers=MERGE, params=strict)
    assert answer.status_code == 400


async def test_an_impossible_value_is_invalid_with_its_place(http: httpx.AsyncClient) -> None:
    answer = await http.post(PATH, json=rollout(steps=[{"setWeight": "5"}]))
    assert answer.status_code == 422
    (cause,) = answer.json()["details"]["causes"]
    assert cause["field"] == "spec.strategy.canary.steps[0].setWeight"


async def test_of_a_built_in_kind_it_cannot_even_be_read(http: httpx.AsyncClient) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"replicas": "3"}}
    answer = await http.post("/apis/apps/v1/namespaces/llm/deployments", json=body)
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")


async def test_what_was_wrong_before_may_stay_wrong(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    """`CRDValidationRatcheting`: a rule that came later does not lock older objects."""
    cluster.create(ROLLOUTS, rollout(steps=[{"setWeight": "5"}]))
    answer = await http.patch(f"{PATH}/chat", json={"spec": {"paused": True}}, headers=MERGE)
    assert answer.status_code == 200
    answer = await http.patch(f"{PATH}/chat", json={"spec": {"replicas": "3"}}, headers=MERGE)
    assert answer.status_code == 422


async def test_null_is_no_value(http: httpx.AsyncClient) -> None:
    body = rollout()
    body["metadata"]["creationTimestamp"] = None  # as Go programs write it
    body["spec"]["replicas"] = None
    answer = await http.post(PATH, json=body, params={"fieldValidation": "Strict"})
    assert answer.status_code == 201 and "replicas" not in answer.json()["spec"]


async def test_an_unknown_way_of_validation_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.post(PATH, json=rollout(), params={"fieldValidation": "Lax"})
    assert answer.status_code == 400


def test_a_route_reads_back_with_what_the_server_filled_in(cluster: FakeCluster) -> None:
    rule = {"backendRefs": [{"name": "chat-stable", "port": 80}]}
    cluster.create(HTTP_ROUTES, {"metadata": {"name": "chat"}, "spec": {"rules": [rule]}})
    (found,) = cluster.get(HTTP_ROUTES, "chat")["spec"]["rules"]
    assert found["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    assert found["backendRefs"] == [{"name": "chat-stable", "port": 80, "group": "", "kind": "Service", "weight": 1}]


def test_a_workload_has_one_replica_where_none_is_said(cluster: FakeCluster) -> None:
    created = cluster.create(DEPLOYMENTS, {"metadata": {"name": "a"}, "spec": {}})
    assert created["spec"]["replicas"] == 1
