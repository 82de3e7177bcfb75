"""Services that are asked through the API server, at an address of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fakes.clock import SimulatedTime
from fakes.kube.api import Api, Reply
from fakes.kube.cluster import FakeCluster
from fakes.kube.requests import Asked
from fakes.kube.server import client_of, fixed

from rollouts.adapters.service_proxy import forwarding
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import SERVICES
from tidegate.core.model import Json

SERVICE: Json = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "chat-canary", "namespace": "support"},
    "spec": {"ports": [{"name": "web", "port": 8080}]},
}


@pytest.fixture
def api() -> Api:
    cluster = FakeCluster("eu-west-1", namespace="support", time=SimulatedTime())
    cluster.create(SERVICES, SERVICE)
    return Api(cluster)


async def test_an_engine_is_asked_by_its_service_and_answers_as_it_is(api: Api) -> None:
    met = list[Asked]()

    def engine(asked: Asked) -> Reply:
        met.append(asked)
        kind = {"content-type": "text/event-stream"}
        return Reply(500, b'{"error": "no memory"}', {}) if len(met) > 1 else Reply(200, b"data: {}\n\n", kind)

    api.pods["chat-canary"] = engine
    async with forwarding(client_of(api), ["chat-canary"]) as addresses, httpx.AsyncClient() as http:
        url, secret = f"{addresses['chat-canary']}/v1/chat/completions?n=1", {"Authorization": "Bearer of the engine"}
        said = await http.post(url, json={"stream": True}, headers=secret)
        assert (said.status_code, said.text, said.headers["content-type"]) == (200, "data: {}\n\n", "text/event-stream")
        again = await http.post(url, json={})
        assert (again.status_code, again.json()) == (500, {"error": "no memory"})
    assert [call.name for call in api.calls if call.subresource == "proxy"] == ["chat-canary:8080"] * 2
    assert (met[0].path, met[0].body, "authorization" in met[0].headers) == (
        "/v1/chat/completions",
        b'{"stream":true}',
        False,
    )


async def test_what_the_api_server_refuses_is_no_word_of_the_engine(api: Api) -> None:
    async with forwarding(client_of(api), ["chat-canary", "gone"]) as addresses, httpx.AsyncClient() as http:
        for service, told in (("chat-canary", "the API server: error trying to reach service"), ("gone", "not found")):
            said = await http.get(f"{addresses[service]}/v1/models")
            assert (said.status_code, told in said.text) == (502, True), said.text
        api.vanish()
        assert (await http.get(f"{addresses['chat-canary']}/v1/models")).status_code == 502


class BrokenOff(httpx.AsyncByteStream):
    """As a busy API server ends an answer after its head."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        raise httpx.RemoteProtocolError("incomplete chunked read")
        yield b""


@pytest.mark.parametrize(
    ("breaks", "reached", "told"),
    [
        (3, True, (200, "fine")),
        (4, True, (502, "broke off 4 answers before they began")),
        (3, False, (200, "fine")),
        (4, False, (502, "cannot be reached")),
    ],
)
async def test_an_answer_that_the_api_server_broke_off_before_it_began_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, breaks: int, reached: bool, told: tuple[int, str]
) -> None:
    monkeypatch.setattr("rollouts.adapters.service_proxy.PAUSE_SECONDS", 0.0)
    asked, clock = list[str](), SimulatedTime()

    def answers(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=SERVICE)
        asked.append(request.content.decode())
        if not reached and len(asked) <= breaks:
            raise httpx.ConnectTimeout("nobody took it")
        return httpx.Response(200, stream=BrokenOff()) if len(asked) <= breaks else httpx.Response(200, text="fine")

    there = fixed("http://api.example", clock)
    cluster = KubeClient(there, namespace="support", clock=clock, transport=httpx.MockTransport(answers))
    async with forwarding(cluster, ["chat-canary"]) as addresses, httpx.AsyncClient() as http:
        said = await http.post(f"{addresses['chat-canary']}/v1/completions", content=b"{}")
    assert (said.status_code, told[1] in said.text, asked) == (told[0], True, ["{}"] * 4)


async def test_only_who_has_the_address_may_ask_and_only_these_services(api: Api) -> None:
    async with forwarding(client_of(api), ["chat-canary"]) as addresses, httpx.AsyncClient() as http:
        address = addresses["chat-canary"]
        guessed = httpx.URL(address).copy_with(path="/guessed/chat-canary/v1/models")
        for url in (guessed, address.replace("chat-canary", "other") + "/v1/models"):
            assert (await http.get(url)).status_code == 404
    assert api.calls == []
    with pytest.raises(httpx.ConnectError):
        await httpx.AsyncClient().get(address)
