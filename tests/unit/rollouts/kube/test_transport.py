"""Connections: shared while the server is the same, new when its certificates change."""

from __future__ import annotations

import httpx
import pytest
from fakes.clock import SimulatedTime

from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.credentials import CredentialProvider
from rollouts.adapters.kube.kubeconfig import ApiServer, Credential
from rollouts.adapters.kube.transport import HttpClient
from rollouts.errors import NoAccess
from rollouts.kube.resources import ROLLOUTS
from rollouts.kube.retry import RetryPolicy


async def test_connections_are_new_when_a_certificate_was_rotated_and_the_last_ones_go_on(time: SimulatedTime) -> None:
    wire = HttpClient(CredentialProvider.fixed("http://x", clock=time), RetryPolicy(time, seconds=0))
    first, second, third = (ApiServer("http://x", fingerprint=name) for name in "abc")
    clients = [await wire._client(server) for server in (first, first, second, third)]
    assert clients[0] is clients[1]
    assert len(set(map(id, clients))) == 3
    assert [client.is_closed for client in clients[1:]] == [True, False, False]
    await wire.close()
    assert all(client.is_closed for client in clients)


async def test_what_goes_over_the_wire(time: SimulatedTime) -> None:
    heard: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        heard.append(request)
        return httpx.Response(200, json={})

    async def credential() -> Credential:
        return Credential(ApiServer("https://x:6443", tls_name="kubernetes"), "Bearer t")

    client = KubeClient(
        CredentialProvider(credential, time), namespace="llm", clock=time, transport=httpx.MockTransport(answer)
    )
    await client.patch(ROLLOUTS, "a", {"status": {"abort": True}}, subresource="status")
    await client.text("/api/v1/namespaces/llm/pods/a/log?tailLines=5")
    await client.close()
    patch, log = heard
    assert (patch.method, patch.url.path) == ("PATCH", "/apis/argoproj.io/v1alpha1/namespaces/llm/rollouts/a/status")
    assert patch.content == b'{"status":{"abort":true}}'
    assert patch.headers["content-type"] == "application/merge-patch+json"
    assert patch.headers["authorization"] == "Bearer t"
    assert patch.headers["user-agent"].startswith("tidegate/")
    assert patch.extensions["sni_hostname"] == "kubernetes"
    assert log.url.query == b"tailLines=5"


async def test_an_address_that_is_none(time: SimulatedTime) -> None:
    client = KubeClient(CredentialProvider.fixed("http://x:port", clock=time), namespace="llm", clock=time)
    with pytest.raises(NoAccess, match="no address of an API server"):
        await client.text("/version")
    await client.close()
