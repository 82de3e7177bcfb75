"""Ways to a cluster: an httpx transport in process, and real sockets with the kubeconfig for them.

Sockets are for commands in their own process, and for what a transport in process cannot show.
"""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import httpx
import pytest
import uvicorn
import yaml
from fakes.clock import RealTime, SimulatedTime
from fakes.kube.api import Api, Lost
from fakes.kube.cluster import FakeCluster
from fakes.kube.requests import TOKEN, Asked
from fakes.services.oci_registry import self_signed
from fakes.waiting import PATIENCE_SECONDS

from rollouts.adapters.sockets import free_port
from rollouts.kube.client import KubeClient
from rollouts.kube.credentials import ApiServer, Credential, CredentialProvider
from tidegate.core.clock import Clock
from tidegate.core.model import Json


class FakeTransport(httpx.AsyncBaseTransport):
    """Answers in the event loop of the one who asks. A lost request is a ConnectError, a lost answer a ReadError."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = Asked(
            request.method,
            request.url.raw_path.decode().partition("?")[0],
            dict(request.url.params),
            {name.lower(): value for name, value in request.headers.items()},
            await request.aread(),
        )
        try:
            answer = self._api.answer(asked)
        except Lost as lost:
            error = httpx.ReadError if lost.sent else httpx.ConnectError
            raise error(str(lost), request=request) from lost
        return httpx.Response(answer.code, headers=answer.headers, content=answer.body, request=request)


def fixed(url: str, clock: Clock, token: str | None = None) -> CredentialProvider:
    """Access that never changes."""
    credential = Credential(ApiServer(url), f"Bearer {token}" if token else None)

    async def same() -> Credential:
        return credential

    return CredentialProvider(same, clock)


def client_of(api: Api) -> KubeClient:
    """The real client, in the cluster's namespace and time; its pauses are without chance."""
    return KubeClient(
        fixed("https://eu-west-1.example", api.cluster.time),
        namespace=api.cluster.namespace,
        clock=api.cluster.time,
        transport=FakeTransport(api),
        chance=lambda: 0.5,
    )


def kubeconfig(servers: Mapping[str, str], authority: bytes, *, namespace: str = "default", token: str = TOKEN) -> Json:
    """Contexts by region, the first one current; everybody trusts the same authority and has the same token."""
    trusted = {"certificate-authority-data": b64encode(authority).decode()}
    user = {"name": "tidegate", "user": {"token": token}}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url} | trusted} for name, url in servers.items()],
        "users": [user],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": user["name"], "namespace": namespace}}
            for name in servers
        ],
        "current-context": next(iter(servers), ""),
    }


def write_kubeconfig(path: Path, servers: Mapping[str, str], authority: bytes, *, namespace: str = "default") -> Path:
    """Write it, readable to its owner only, as a file with a token should be."""
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(kubeconfig(servers, authority, namespace=namespace), sort_keys=False))
    return path


T = TypeVar("T")
Message = MutableMapping[str, Any]


class FakeServers:
    """Several regions' API servers in one thread, each on its own port.

    They speak TLS with a certificate that the kubeconfig names: kubectl sends no token without. A cluster belongs to
    the thread's event loop: touch it through `do` alone. A region that vanishes refuses connections; a request that
    is lost otherwise breaks its connection.
    """

    def __init__(self, apis: Mapping[str, Api], loop: asyncio.AbstractEventLoop, folder: Path, namespace: str) -> None:
        self._apis = dict(apis)
        self._loop = loop
        self._ports = {name: free_port() for name in apis}
        self._serving: dict[str, tuple[uvicorn.Server, asyncio.Task[None]]] = {}
        self.urls = {name: f"https://127.0.0.1:{port}" for name, port in self._ports.items()}
        self._certificate, self._key = folder / "tls.pem", folder / "tls.key"
        self_signed("127.0.0.1", self._certificate, self._key)
        authority = self._certificate.read_bytes()
        self.kubeconfig = write_kubeconfig(folder / "kubeconfig", self.urls, authority, namespace=namespace)

    def api(self, region: str) -> Api:
        """A region's API server: its cluster, faults and access."""
        return self._apis[region]

    def do(self, action: Callable[[], T]) -> T:
        """Run it where the clusters live, and return what it returns."""

        async def run() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_SECONDS)

    def run(self, action: Coroutine[Any, Any, T]) -> T:
        """As `do`, for what has to be waited for there."""
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(PATIENCE_SECONDS)

    def vanish(self, region: str) -> None:
        """Close its port."""
        asyncio.run_coroutine_threadsafe(self.stop(region), self._loop).result(PATIENCE_SECONDS)

    def come_back(self, region: str) -> None:
        """Open the same port again."""
        asyncio.run_coroutine_threadsafe(self.start(region), self._loop).result(PATIENCE_SECONDS)

    async def start(self, region: str) -> None:
        api = self._apis[region]
        api.come_back()
        config = uvicorn.Config(
            app_of(api),
            host="127.0.0.1",
            port=self._ports[region],
            log_level="critical",
            lifespan="off",
            ws="none",
            date_header=False,
            server_header=False,
            ssl_certfile=self._certificate,
            ssl_keyfile=self._key,
        )
        server = uvicorn.Server(config)
        self._serving[region] = server, asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)

    async def stop(self, region: str) -> None:
        server, task = self._serving.pop(region)
        self._apis[region].vanish()
        server.force_exit = True
        server.should_exit = True
        await task

    async def stop_all(self) -> None:
        for region in tuple(self._serving):
            await self.stop(region)


@contextmanager
def serving(apis: Mapping[str, Api], folder: Path, *, namespace: str = "default") -> Iterator[FakeServers]:
    """While these regions are served; `folder` gets the kubeconfig that names them.

    Raises:
        ValueError: a cluster lives in simulated time, which would run away while a socket waits.
    """
    if any(isinstance(api.cluster.time, SimulatedTime) for api in apis.values()):
        raise ValueError("a served cluster needs RealTime")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake clusters", daemon=True)
    thread.start()
    servers = FakeServers(apis, loop, folder, namespace)
    try:
        for region in apis:
            servers.come_back(region)
        yield servers
    finally:
        asyncio.run_coroutine_threadsafe(servers.stop_all(), loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()


@contextmanager
def one_region(
    region: str, folder: Path, patched: pytest.MonkeyPatch, *, namespace: str = "default"
) -> Iterator[FakeServers]:
    """A served cluster that `KUBECONFIG` names."""
    api = Api(FakeCluster(region, namespace=namespace, time=RealTime()))
    with serving({region: api}, folder, namespace=namespace) as servers:
        patched.setenv("KUBECONFIG", str(servers.kubeconfig))
        yield servers


def app_of(api: Api) -> Callable[..., Any]:
    """The API server as an ASGI application."""

    async def app(scope: Message, receive: Callable[[], Any], send: Callable[[Message], Any]) -> None:
        try:
            answer = api.answer(await _asked(scope, receive))
            await _begin(send, answer.code, answer.headers | {"content-length": str(len(answer.body))})
            await send({"type": "http.response.body", "body": answer.body})
        except Lost:
            # An answer that was promised and does not come makes the server break the connection.
            await _begin(send, 200, {"content-length": "1"})

    return app


async def _asked(scope: Message, receive: Callable[[], Any]) -> Asked:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
    return Asked(scope["method"], scope["raw_path"].decode(), _query(scope["query_string"].decode()), headers, body)


def _query(text: str) -> dict[str, str]:
    return dict(parse_qsl(text, keep_blank_values=True))


async def _begin(send: Callable[[Message], Any], code: int, headers: Mapping[str, str]) -> None:
    said = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": code, "headers": said})
