"""What goes over the wire, and over which connections."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from fakes.clock import SimulatedTime
from fakes.kube.server import fixed

from rollouts.errors import NoAccess
from rollouts.kube.client import KubeClient
from rollouts.kube.credentials import ApiServer, Credential, CredentialProvider
from rollouts.kube.resources import EVERYWHERE, NODES, PODS, ROLES, ROLLOUTS, AccessReview

ROLLOUT = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "a"}}
OTHER = ROLLOUT | {"metadata": {"name": "a", "namespace": "other"}}
ARGO = "/apis/argoproj.io/v1alpha1/namespaces/llm/rollouts"
LLM = "/api/v1/namespaces/llm"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/llm"
STRICT = "?fieldManager=tidegate&fieldValidation=Strict"
JSON, MERGE, APPLY = (f"application/{kind}" for kind in ("json", "merge-patch+json", "apply-patch+yaml"))

Act = Callable[[KubeClient], Awaitable[Any]]


async def heard(time: SimulatedTime, act: Act) -> httpx.Request:
    """The one request that this makes."""
    requests: list[httpx.Request] = []

    def take(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"items": [], "metadata": {}, "status": {"allowed": True}})

    async def credential() -> Credential:
        return Credential(ApiServer("https://x:6443", tls_name="kubernetes"), "Bearer t")

    access = CredentialProvider(credential, time)
    client = KubeClient(access, namespace="llm", clock=time, transport=httpx.MockTransport(take))
    await act(client)
    await client.close()
    (request,) = requests
    assert request.headers["authorization"] == "Bearer t"
    assert request.headers["user-agent"].startswith("tidegate/")
    assert request.extensions["sni_hostname"] == "kubernetes"
    return request


CALLS: dict[str, Act] = {
    f"GET {ARGO}/a": lambda client: client.get(ROLLOUTS, "a"),
    "GET /api/v1/namespaces/other/pods/a": lambda client: client.get(PODS, "a", namespace="other"),
    "GET /api/v1/nodes/n1": lambda client: client.get(NODES, "n1"),
    f"GET {RBAC}/roles/system:x%2Fy": lambda client: client.get(ROLES, "system:x/y"),
    "GET /api/v1/pods": lambda client: client.list(PODS, namespace=EVERYWHERE),
    "GET /api/v1/nodes": lambda client: client.list(NODES, namespace="x"),
    f"GET {LLM}/pods?labelSelector=a%3Db": lambda client: client.list(PODS, labels="a=b"),
    f"GET {LLM}/pods/a/log?tailLines=5": lambda client: client.text(f"{LLM}/pods/a/log?tailLines=5"),
    f"POST {ARGO}{STRICT} {JSON}": lambda client: client.create(ROLLOUTS, ROLLOUT),
    f"POST {ARGO.replace('llm', 'other')}{STRICT} {JSON}": lambda client: client.create(ROLLOUTS, OTHER),
    f"PATCH {ARGO}/a{STRICT} {APPLY}": lambda client: client.apply(ROLLOUT),
    f"PATCH {ARGO}/a{STRICT}&force=true&dryRun=All {APPLY}": lambda client: client.apply(
        ROLLOUT, force=True, dry_run=True
    ),
    f"PUT {ARGO}/a{STRICT} {JSON}": lambda client: client.replace(ROLLOUTS, ROLLOUT),
    f"PATCH {ARGO}/a/status{STRICT} {MERGE}": lambda client: client.patch(ROLLOUTS, "a", {}, subresource="status"),
    f"DELETE {ARGO}/a?propagationPolicy=Background": lambda client: client.delete(ROLLOUTS, "a"),
}


@pytest.mark.parametrize("wanted", CALLS)
async def test_a_request_goes_where_it_should_and_writes_are_strict(wanted: str, time: SimulatedTime) -> None:
    request = await heard(time, CALLS[wanted])
    kind = request.headers.get("content-type", "")
    assert f"{request.method} {request.url.raw_path.decode()} {kind}".strip() == wanted
    assert bool(request.content) is bool(kind)


async def test_a_body_keeps_its_order_and_its_letters(time: SimulatedTime) -> None:
    request = await heard(time, lambda client: client.patch(ROLLOUTS, "a", {"status": {"b": None, "a": "köln"}}))
    assert request.content == '{"status":{"b":null,"a":"köln"}}'.encode()


@pytest.mark.parametrize(
    ("question", "attributes"),
    [
        (
            AccessReview(verb="patch", resource=ROLLOUTS, name="a", subresource="status"),
            "namespace:llm verb:patch group:argoproj.io version:v1alpha1 resource:rollouts subresource:status name:a",
        ),
        (AccessReview(verb="list", resource=NODES), "verb:list version:v1 resource:nodes"),
        (AccessReview(verb="list", resource=PODS, namespace=EVERYWHERE), "verb:list version:v1 resource:pods"),
    ],
)
async def test_a_question_of_access(question: AccessReview, attributes: str, time: SimulatedTime) -> None:
    request = await heard(time, lambda client: client.allowed(question))
    assert request.url.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    wanted = dict(pair.split(":") for pair in attributes.split())
    assert json.loads(request.content)["spec"] == {"resourceAttributes": wanted}


async def test_connections_are_new_when_a_certificate_was_rotated_and_the_last_ones_go_on(time: SimulatedTime) -> None:
    client = KubeClient(fixed("http://x", time), namespace="llm", clock=time)
    first, second, third = (ApiServer("http://x", fingerprint=name) for name in "abc")
    clients = [await client._client(server) for server in (first, first, second, third)]
    assert clients[0] is clients[1]
    assert len(set(map(id, clients))) == 3
    assert [each.is_closed for each in clients[1:]] == [True, False, False]
    await client.close()
    assert all(each.is_closed for each in clients)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (ApiServer("http://x:port"), "http://x:port is no address of an API server"),
        (ApiServer("http://x", proxy="ftp://u:hunter2@proxy"), "the proxy for http://x cannot be used"),
    ],
)
async def test_an_address_that_is_none(server: ApiServer, said: str, time: SimulatedTime) -> None:
    async def credential() -> Credential:
        return Credential(server)

    client = KubeClient(CredentialProvider(credential, time), namespace="llm", clock=time)
    with pytest.raises(NoAccess) as caught:
        await client.text("/version")
    assert caught.value.message == said
    assert "hunter2" not in f"{caught.value!r}{caught.value.detail}"
    await client.close()
