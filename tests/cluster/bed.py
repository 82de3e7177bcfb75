"""What all stories on clusters share: namespaces, gateways, controllers of Rollouts, MLflow, and a base for engines."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from cluster.engine.image import push_engine, with_libraries
from cluster.surroundings import Surroundings, run
from cluster.toolchain import push_toolchain
from e2e.machine import until
from fakes.argo.stage import ControllerProcess
from fakes.services.sockets import running

from engine_images.adapters.oci_layout import OciLayout
from engine_images.oci.model import Base
from rollouts.adapters.kube.client import KubeClient, connect
from rollouts.errors import FleetError, NotFound
from rollouts.kube.model import Resource
from rollouts.kube.resources import SERVICES
from tidegate.core.clock import SystemClock
from tidegate.core.model import Json

GATEWAY = "users"
OWNER = "gateway.envoyproxy.io/owning-gateway-name"
"""Labels the Service of a gateway's proxies."""
TESTS = Path(__file__).parents[1]

Got = TypeVar("Got")


def free_port(address: str) -> int:
    """One of this machine, at an address of its loopback."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


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
    _pushing: threading.Lock = field(default_factory=threading.Lock)
    _outside: list[tuple[str, Resource, str]] = field(default_factory=list)
    """What was brought that belongs to no namespace: region, kind, name."""

    def __post_init__(self) -> None:
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

    @cached_property
    def toolchain(self) -> str:
        """The image of workflows' steps; made once."""
        registry = next(iter(self.around.clusters.values())).registry
        return push_toolchain(self.around.base, self.folder, f"{registry}/tidegate-test/tidegate:{self.namespace}")

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

        until(f"the API server of {region} answers", answers, seconds=60)

    def kubeconfig_text(self) -> str:
        return Path(self.kubeconfig).read_text(encoding="utf-8")

    @property
    def environment(self) -> Mapping[str, str]:
        """For commands that a person would type here."""
        return {"KUBECONFIG": self.kubeconfig, "MLFLOW_TRACKING_URI": self.tracking_uri, "CI": "1"}


@contextmanager
def bed(around: Surroundings, namespace: str, folder: Path) -> Iterator[Bed]:
    """While it lasts; the namespace itself is made and deleted by others."""
    with ExitStack() as stack:
        made = Bed(around, namespace, folder, os.environ["KUBECONFIG"])
        stack.callback(made.tidy)
        made.mlflow, made.tracking_uri = stack.enter_context(_mlflow(around, folder))
        for region in around.clusters:
            made.ask(region, lambda client, region=region: client.apply(_gateway(made, region), force=True))
            made.controllers[region] = stack.enter_context(_controller(made, region))
        for region in around.clusters:
            made.entries[region] = _entry(made, region)
        yield made


@contextmanager
def _controller(bed: Bed, region: str) -> Iterator[ControllerProcess]:
    """Argo Rollouts' simulated controller of one region: a process that may be killed and started again."""
    context, log = bed.around.clusters[region].context, bed.folder / f"controller-{region}.log"
    controller = ControllerProcess(bed.namespace, log, context=context, kubeconfig=bed.kubeconfig)
    asyncio.run(controller.start())
    try:
        yield controller
    finally:
        asyncio.run(controller.end())


@contextmanager
def _mlflow(around: Surroundings, folder: Path) -> Iterator[tuple[str, str]]:
    """MLflow's own server, where pods reach it too if workflows are to deliver: where it listens, and its address."""
    there = around.workflows
    own = f"127.0.0.1:{free_port('127.0.0.1')}"
    listens, asked = (there.address, there.forwarded) if there else (own, own)
    store = folder / "mlflow"
    store.mkdir()
    host, _, port = listens.partition(":")
    command = [*(there.prefix if there else ()), sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", host, "--port", port, "--backend-store-uri", f"sqlite:///{store / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(store / "artifacts"), "--serve-artifacts", "--allowed-hosts", "*"]
    if there and there.forward:
        run(there.forward)
    settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = folder / "mlflow.log"
    with running(command, ready=f"http://{asked}/health", log=log, within=180, settings=settings):
        yield listens, f"http://{asked}"


def _gateway(bed: Bed, region: str) -> Json:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": GATEWAY, "namespace": bed.namespace},
        "spec": {
            "gatewayClassName": bed.around.clusters[region].gateway_class,
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
        },
    }


def _entry(bed: Bed, region: str) -> str:
    """The gateway's address, once its proxy takes connections."""
    proxies = bed.around.clusters[region].gateway_namespace

    def service() -> str | None:
        found = bed.ask(region, lambda client: _services(client, proxies, bed.namespace))
        return found[0] if found else None

    address = bed.forward(region, until(f"the gateway of {region} has a Service", service, seconds=120), proxies)
    host, _, port = address.removeprefix("http://").partition(":")

    def answers() -> bool:
        try:
            with socket.create_connection((host, int(port)), timeout=2) as probe:
                probe.sendall(b"GET / HTTP/1.1\r\nhost: unknown\r\nconnection: close\r\n\r\n")
                return probe.recv(12).startswith(b"HTTP/1.1")
        except OSError:
            return False

    until(f"the gateway of {region} answers", answers, seconds=120)
    return address


async def _services(client: KubeClient, namespace: str, owner: str) -> list[str]:
    labels = f"{OWNER}={GATEWAY},gateway.envoyproxy.io/owning-gateway-namespace={owner}"
    found = await client.list(SERVICES, labels=labels, namespace=namespace)
    return [each["metadata"]["name"] for each in found.items]
