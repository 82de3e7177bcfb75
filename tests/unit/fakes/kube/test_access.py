"""Tokens and RBAC rules, asked by a request and by a SelfSubjectAccessReview alike."""

from __future__ import annotations

import httpx
import pytest
from fakes.kube.api import Api

from tidegate.core.model import Json

RULES: tuple[Json, ...] = (
    {"apiGroups": ["argoproj.io"], "resources": ["rollouts"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": ["argoproj.io"], "resources": ["rollouts/status"], "verbs": ["patch"], "resourceNames": ["chat"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
)


def review(verb: str, group: str, resource: str, **more: str) -> Json:
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": "llm"} | more
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


@pytest.mark.parametrize(
    ("question", "allowed"),
    [
        (review("patch", "argoproj.io", "rollouts"), True),
        (review("create", "argoproj.io", "rollouts"), False),
        (review("patch", "argoproj.io", "rollouts", subresource="status", name="chat"), True),
        (review("patch", "argoproj.io", "rollouts", subresource="status", name="other"), False),
        (review("patch", "argoproj.io", "rollouts", subresource="status"), False),
        (review("delete", "", "pods"), True),
        (review("get", "", "pods", subresource="log"), False),
        (review("get", "apps", "pods"), False),
        (review("get", "", "nodes", namespace=""), False),
    ],
)
async def test_a_review_answers_by_the_rules(http: httpx.AsyncClient, api: Api, question: Json, allowed: bool) -> None:
    api.access.allow_only(*RULES)
    answer = await http.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json=question)
    assert (answer.status_code, answer.json()["status"]["allowed"]) == (201, allowed)


async def test_what_no_rule_grants_is_forbidden_in_the_servers_words(http: httpx.AsyncClient, api: Api) -> None:
    api.access.allow_only(*RULES)
    answer = await http.delete("/apis/argoproj.io/v1alpha1/namespaces/llm/rollouts/chat")
    assert answer.status_code == 403
    assert answer.json()["message"] == (
        'rollouts.argoproj.io "chat" is forbidden: User "tidegate" cannot delete resource "rollouts" '
        'in API group "argoproj.io" in the namespace "llm"'
    )


async def test_a_cluster_role_reaches_what_has_no_namespace(http: httpx.AsyncClient, api: Api) -> None:
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    api.access.allow_only(*RULES, everywhere=(nodes,))
    assert (await http.get("/api/v1/nodes")).status_code == 200
    api.access.allow_only(*RULES, nodes)
    assert (await http.get("/api/v1/nodes")).status_code == 403


async def test_a_token_that_expired_is_not_known_any_more(http: httpx.AsyncClient, api: Api) -> None:
    api.access.require("old")
    with_old = {"authorization": "Bearer old"}
    assert (await http.get("/version", headers=with_old)).status_code == 200
    api.access.require("new")
    refused = await http.get("/version", headers=with_old)
    assert (refused.status_code, refused.json()["reason"]) == (401, "Unauthorized")
    assert (await http.get("/version", headers={"authorization": "Bearer new"})).status_code == 200
    assert (await http.get("/version")).status_code == 401
