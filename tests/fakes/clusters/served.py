"""Regions whose API servers and engines answer on sockets: real commands deliver to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from fakes.clock import RealTime
from fakes.clusters.region import NAMESPACE, ClusterRegion, an_image
from fakes.kube.api import Api, Reply
from fakes.kube.requests import Asked
from fakes.kube.server import FakeServers, serving

from registry.conventions import ENGINE_IMAGE
from registry.versions import MlflowRegistry
from rollouts.manifests.spec import ArgoFleetSpec

NOBODY = "http://127.0.0.1:9"
"""Where nothing listens: no gate of `delivery_to` asks a Prometheus."""


def delivery_to(waves: Sequence[Sequence[str]], *, name: str, engine: str) -> dict[str, Any]:
    """A spec whose gates need no traffic: questions with known answers, and health.

    Args:
        waves: the regions of each.
        name: of the model.
        engine: the address of `fakes.services.chat_servers.engines`.
    """
    region = {"entry": "https://llm.example", "stable_url": f"{engine}/stable", "canary_url": f"{engine}/canary"}
    regions = [each for wave in waves for each in wave]
    return {
        "apiVersion": "tidegate/v1",
        "kind": "Delivery",
        "metadata": {"name": "support-llm"},
        "model": {"name": name},
        "engine": {"vllm": {"version": "0.32.0"}},
        "gates": {"quality": {"scorer": "contains", "min_prompts": 10, "max_drop": 0.1}},
        "stages": [{"offline": {"dataset": "golden.jsonl"}}],
        "regions": {"waves": [list(wave) for wave in waves], "bake": "1s"},
        "fleet": {
            "kind": "argo",
            "namespace": NAMESPACE,
            "gateway": {"name": "public", "hosts": ["llm.example"]},
            "regions": {each: region | {"context": each, "prometheus": NOBODY} for each in regions},
        },
    }


def behind(api: Api, services: Mapping[str, str]) -> Api:
    """Addresses that answer behind Services, as the API server's proxy reaches them."""
    for service, url in services.items():
        api.pods[service] = partial(_passed_on, url)
    return api


def _passed_on(url: str, asked: Asked) -> Reply:
    kind = {"content-type": asked.headers.get("content-type", "")}
    said = httpx.request(asked.method, url + asked.path, content=asked.body, headers=kind)
    return Reply(said.status_code, said.content, {"content-type": said.headers.get("content-type", "")})


def write_golden_set(folder: Path) -> None:
    """Twelve questions, whose answer the good engine knows."""
    golden = [{"prompt": f"What is {number} minus {number - 4}?", "expected": "four"} for number in range(4, 16)]
    (folder / "golden.jsonl").write_text("\n".join(json.dumps(entry) for entry in golden))


def mark_images(registry: MlflowRegistry, name: str) -> None:
    """Every version has an engine image, which nobody pulls."""
    for version in registry.versions(name):
        image = f"registry.example/support-llm@sha256:{version.version.zfill(64)}"
        registry.mark(version, {ENGINE_IMAGE: image})


class Clusters:
    """The regions' API servers and controllers."""

    def __init__(
        self,
        servers: FakeServers,
        regions: Mapping[str, ClusterRegion],
        controllers: Sequence[asyncio.Future[None]] = (),
    ) -> None:
        self.servers = servers
        self._regions = regions
        self._controllers = controllers

    def stop_controllers(self) -> None:
        """Nobody reacts any more to what the API servers are told."""
        for controller in self._controllers:
            self.servers.do(controller.cancel)

    def region(self, name: str) -> ClusterRegion:
        """One of them; touch it through `servers` alone."""
        return self._regions[name]

    def serve(self, version: str) -> None:
        """Every region serves that version, promoted as a delivery does it."""
        for region in self._regions.values():
            self.servers.run(region.fleet.deploy(an_image(version)))
            if self.servers.do(lambda one=region: one.versions()[0]) != version:
                self.servers.run(region.fleet.promote())
            self.servers.run(region.fleet.settle())

    def try_out(self, version: str, weight: int) -> None:
        """Every region has that version on trial, with so many percent of its users."""
        for region in self._regions.values():
            # Another carrier each time: the one who takes a region back keeps out the one before.
            fleet = region.open()
            self.servers.run(fleet.deploy(an_image(version)))
            self.servers.run(fleet.shift(weight))
            self.servers.run(fleet.leave())

    def splits(self) -> list[tuple[int, int]]:
        """Percent of users and of copies on the canary now, region by region."""
        return [self.servers.do(lambda one=one: one.splits[-1]) for one in self._regions.values()]

    def versions(self) -> list[str]:
        """Whom users reach, region by region."""
        return [self.servers.do(lambda one=one: one.versions()[0]) for one in self._regions.values()]


@contextmanager
def clusters(spec: Mapping[str, Any], folder: Path) -> Iterator[Clusters]:
    """The empty regions of a spec, with their controllers; the kubeconfig lies in `folder`."""
    fleet = ArgoFleetSpec.model_validate(spec["fleet"])
    regions = {each: ClusterRegion(each, spec=fleet, time=RealTime()) for each in fleet.regions}
    with serving({each: one.api for each, one in regions.items()}, folder, namespace=NAMESPACE) as servers:
        running = [servers.do(lambda one=one: asyncio.ensure_future(one.simulation.run())) for one in regions.values()]
        yield Clusters(servers, regions, running)
        for task in running:
            servers.do(task.cancel)
