"""What all stories on clusters share: namespaces, gateways, controllers of Rollouts, MLflow, and a base for engines."""

from __future__ import annotations

import asyncio
import copy
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cluster.engine.image import push_engine, with_libraries
from cluster.surroundings import Surroundings, WorkflowSurroundings, run
from cluster.toolchain import push_toolchain
from fakes.argo.separate import ControllerProcess
from fakes.services.sockets import running
from fakes.waiting import eventually, until

from engine_images.adapters.oci_layout import OciLayout
from engine_images.oci.model import Base
from rollouts.adapters import sockets
from rollouts.errors import FleetError, NotFound
from rollouts.kube.client import KubeClient, connect
from rollouts.kube.resources import NAMESPACES, SERVICES, Resource
from tidegate.core.clock import SystemClock
from tidegate.core.model import Json

GATEWAY = "users"
OWNER = "gateway.envoyproxy.io/owning-gateway-name"
"""Labels the Service of a gateway's proxies."""

Got = TypeVar("Got")


def free_port(address: str) -> int:
    """One of this machine that nobody uses at an address of its loopback, and that nobody else has just chosen."""
    while True:
        port = sockets.free_port()
        with socket.socket() as probe, suppress(OSError):
            probe.bind((address, port))
            return port


@dataclass
class Bed:
    """Regions that deliveries of many models share."""

    around: Surroundings
    namespace: str
    folder: Path
    kubeconfig: str
    layout: OciLayout = field(init=False)
    base: Base = field(init=False)
    tracking_uri: str = ""
    mlflow: str = ""
    """Where its server listens, which is a child of ours."""
    entries: dict[str, str] = field(default_factory=dict)
    """By region: where its gateway takes users, as this machine reaches it."""
    controllers: dict[str, ControllerProcess] = field(default_factory=dict)
    gateway_namespace: str = field(init=False)
    _pushing: threading.Lock = field(default_factory=threading.Lock)
    _making: threading.Lock = field(default_factory=threading.Lock)
    _toolchain: list[str] = field(default_factory=list)
    _outside: list[tuple[str, Resource, str]] = field(default_factory=list)
    """What was brought that belongs to no namespace: region, kind, name."""

    def __post_init__(self) -> None:
        self.gateway_namespace = self.namespace
        self.layout = OciLayout(self.folder / "images")
        self.base = with_libraries(self.around.base, self.layout, self.folder)

    def client(self, region: str, **options: float) -> KubeClient:
        """Of one region's API server."""
        context = self.around.clusters[region].context
        return connect(context, clock=SystemClock(), namespace=self.namespace, kubeconfig=self.kubeconfig, **options)

    def ask(self, region: str, question: Callable[[KubeClient], Awaitable[Got]]) -> Got:
        """The answer of one region's API server."""

        async def asking() -> Got:
            client = self.client(region)
            try:
                return await question(client)
            finally:
                await client.close()

        return asyncio.run(asking())

    def until(self, what: str, region: str, look: Callable[[KubeClient], Awaitable[Got | None]]) -> Got:
        """The first answer of that region's API server that is neither None nor False, over one connection."""
        return self.ask(region, lambda client: eventually(what, lambda: look(client)))

    def forward(self, region: str, service: str, namespace: str | None = None) -> str:
        """Where this machine reaches a Service of that region from now on."""
        there, namespace = self.around.clusters[region], namespace or self.namespace
        port = free_port(there.address)
        host = self._host(region, service, namespace)
        run(there.forward, host=host, service=service, namespace=namespace, port=port)
        return f"http://{there.address}:{port}"

    def _host(self, region: str, service: str, namespace: str) -> str:
        """A Service's cluster IP, so that no connection waits for the cluster's DNS; its name until it has one."""
        with suppress(NotFound):
            found = self.ask(region, lambda client: client.get(SERVICES, service, namespace=namespace))
            if (address := found["spec"].get("clusterIP", "None")) != "None":
                return str(address)
        return f"{service}.{namespace}.svc.cluster.local"

    def push_engine(self, name: str, version: str, model: Path) -> str:
        """An engine's image of that folder, in the registry from which all regions pull; by digest."""
        registry = next(iter(self.around.clusters.values())).registry
        target = f"{registry}/tidegate-test/{name}:{version}"
        # One after the other: the layout's index is one file.
        with self._pushing:
            pushed = push_engine(self.layout, self.base, name=name, version=version, model=model, target=target)
        repository, _, digest = pushed.partition("@")
        return f"{repository.rpartition(':')[0]}@{digest}"

    @property
    def toolchain(self) -> str:
        """The image of workflows' steps and of guards; made by the first who asks."""
        registry = next(iter(self.around.clusters.values())).registry
        target = f"{registry}/tidegate-test/tidegate:{self.gateway_namespace}"
        with self._making:
            if not self._toolchain:
                self._toolchain.append(push_toolchain(self.around.base, self.folder, target))
        return self._toolchain[0]

    @contextmanager
    def apart(self, name: str, *, ledger: bool = False) -> Iterator[Bed]:
        """The same regions, with namespaces, files and controllers of its own, with `ledger` an MLflow server too."""
        other = copy.copy(self)
        other.namespace, other.folder = f"{self.namespace}-{name}", self.folder / name
        other.folder.mkdir()
        with ExitStack() as stack:
            for region in self.around.clusters:
                stack.enter_context(_namespace(other, region))
            if ledger:
                other.mlflow, other.tracking_uri = stack.enter_context(_mlflow(None, other.folder))
            other.controllers = {
                region: stack.enter_context(_controller(other, region)) for region in self.around.clusters
            }
            yield other

    def leaves_behind(self, region: str, kind: Resource, name: str) -> None:
        """Something that will not go with the namespace."""
        self._outside.append((region, kind, name))

    def tidy(self) -> None:
        """Delete what would not go with the namespace."""
        for region, kind, name in dict.fromkeys(self._outside):
            with suppress(NotFound):
                self.ask(region, lambda client, kind=kind, name=name: client.delete(kind, name))

    def stop(self, region: str) -> None:
        """End that region's API server at once."""
        run(self.around.clusters[region].stop)

    def start(self, region: str) -> None:
        """Bring it back; return once it answers."""
        run(self.around.clusters[region].start)

        def answers() -> bool:
            with suppress(FleetError):
                return bool(self.ask(region, lambda client: client.text("/version")))
            return False

        until(f"the API server of {region} answers", answers)

    def kubeconfig_text(self) -> str:
        return Path(self.kubeconfig).read_text(encoding="utf-8")

    @property
    def environment(self) -> Mapping[str, str]:
        """For commands that a person would type here."""
        return {"KUBECONFIG": self.kubeconfig, "MLFLOW_TRACKING_URI": self.tracking_uri, "CI": "1"}


@contextmanager
def bed(around: Surroundings, namespace: str, folder: Path) -> Iterator[Bed]:
    """While it lasts, in namespaces of that name."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())
        mlflow = pool.submit(stack.enter_context, _mlflow(around.workflows, folder))
        made = Bed(around, namespace, folder, os.environ["KUBECONFIG"])
        stack.callback(made.tidy)
        for region in around.clusters:
            stack.enter_context(_namespace(made, region))
            made.ask(region, lambda client, region=region: client.apply(_gateway(made, region), force=True))
        made.entries = {region: _entry(made, region) for region in around.clusters}
        made.controllers = {region: stack.enter_context(_controller(made, region)) for region in around.clusters}
        made.mlflow, made.tracking_uri = mlflow.result()
        yield made


@contextmanager
def _namespace(bed: Bed, region: str) -> Iterator[None]:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bed.namespace}}
    bed.ask(region, lambda client: client.create(NAMESPACES, body))
    try:
        yield
    finally:
        with suppress(NotFound):
            bed.ask(region, lambda client: client.delete(NAMESPACES, bed.namespace))


@contextmanager
def _controller(bed: Bed, region: str) -> Iterator[ControllerProcess]:
    """Argo Rollouts' simulated controller of one region: a process that may be killed and started again."""
    context, log = bed.around.clusters[region].context, bed.folder / f"{bed.namespace}-{region}.log"
    controller = ControllerProcess(bed.namespace, log, context=context, kubeconfig=bed.kubeconfig)
    asyncio.run(controller.start())
    try:
        yield controller
    finally:
        asyncio.run(controller.end())


@contextmanager
def _mlflow(there: WorkflowSurroundings | None, folder: Path, name: str = "mlflow") -> Iterator[tuple[str, str]]:
    """MLflow's own server, where pods reach it too if workflows are to deliver: where it listens, and its address."""
    own = f"127.0.0.1:{free_port('127.0.0.1')}"
    listens, asked = (there.address, there.forwarded) if there else (own, own)
    store = folder / name
    store.mkdir()
    host, _, port = listens.partition(":")
    command = [*(there.prefix if there else ()), sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", host, "--port", port, "--backend-store-uri", f"sqlite:///{store / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(store / "artifacts"), "--serve-artifacts", "--allowed-hosts", "*"]
    if there and there.forward:
        run(there.forward)
    settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = folder / f"{name}.log"
    with running(command, ready=f"http://{asked}/health", log=log, settings=settings):
        yield listens, f"http://{asked}"


def _gateway(bed: Bed, region: str) -> Json:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": GATEWAY, "namespace": bed.namespace},
        "spec": {
            "gatewayClassName": bed.around.clusters[region].gateway_class,
            "listeners": [
                {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
            ],
        },
    }


def _entry(bed: Bed, region: str) -> str:
    """The gateway's address, once its proxy takes connections."""
    proxies = bed.around.clusters[region].gateway_namespace

    service = bed.until(
        f"the gateway of {region} has a Service",
        region,
        lambda client: _service(client, proxies, bed.namespace),
    )
    address = bed.forward(region, service, proxies)
    host, _, port = address.removeprefix("http://").partition(":")

    def answers() -> bool:
        try:
            with socket.create_connection((host, int(port)), timeout=2) as probe:
                probe.sendall(b"GET / HTTP/1.1\r\nhost: unknown\r\nconnection: close\r\n\r\n")
                return probe.recv(12).startswith(b"HTTP/1.1")
        except OSError:
            return False

    until(f"the gateway of {region} answers", answers)
    return address


async def _service(client: KubeClient, namespace: str, owner: str) -> str | None:
    labels = f"{OWNER}={GATEWAY},gateway.envoyproxy.io/owning-gateway-namespace={owner}"
    found = await client.list(SERVICES, labels=labels, namespace=namespace)
    return next((each["metadata"]["name"] for each in found), None)
