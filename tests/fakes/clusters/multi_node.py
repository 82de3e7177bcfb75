"""A region whose engines take several nodes each: the real fleet, guard and manifests, and simulated controllers."""

from __future__ import annotations

from typing import Any

import httpx
from fakes.clusters.region import DELIVERER, NAME, ClusterRegion, a_fleet
from fakes.lws.controller import LeaderWorkerSets

from rollouts.cluster.carrier import Carrier
from rollouts.cluster.guard import Guard
from rollouts.guarded.groups import GuardedGroups
from rollouts.kube.resources import LEADER_WORKER_SETS, SERVICES
from rollouts.manifests.conventions import RenderPart, canary_service, stable_service
from rollouts.manifests.manifest import Release
from rollouts.manifests.render import render
from rollouts.model import Engine, ImageLaunch
from rollouts.multinode.fleet import LeaderWorkerSetFleet
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.names import VERSION

NODES = 2
LAUNCH = ImageLaunch(
    arguments=("--model", "/models/support-llm", "--tensor-parallel-size", "8", "--pipeline-parallel-size", "2"),
    accelerators=16,
    nodes=NODES,
)


def an_image_of_nodes(version: str, *, digest: str | None = None) -> Engine:
    """An engine over two nodes."""
    image = f"registry.example/vllm@sha256:{version.zfill(64)}"
    return Engine(version=version, digest=digest or f"sha256-of-{version}", model=NAME, image=image, launch=LAUNCH)


class MultiNodeRegion(ClusterRegion):
    """One region."""

    def __init__(self, region: str = "eu-west-1", **options: Any) -> None:
        options.setdefault("spec", a_fleet(region, multi_node={"size": NODES}))
        super().__init__(region, **options)
        self.sets = LeaderWorkerSets(self.cluster)

    def open(  # type: ignore[override]
        self,
        *,
        retry_seconds: float | None = None,
        carrier: Carrier | None = DELIVERER,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> LeaderWorkerSetFleet:
        """Another fleet of the same region, as after a crash or on another machine."""
        return LeaderWorkerSetFleet(
            self.place(self._retry_seconds if retry_seconds is None else retry_seconds),
            cluster=self.client(transport),
            routes=self.routes,
            render=self.render,
            clock=self.time,
            served=self.users if self.users.per_second else None,
            carrier=carrier,
        )

    def guard(self, clock: Clock | None = None, *, transport: httpx.AsyncBaseTransport | None = None) -> Guard:
        client = self.client(transport, retry_seconds=0)
        place, time = self.place(60.0), clock or self.time
        return Guard(place, GuardedGroups(place, client, self.routes, time), client, time)

    def plainly(self, engine: Engine) -> tuple[Json, ...]:
        release = Release(
            delivery=NAME,
            region=self.region,
            version=engine.version,
            digest=engine.digest,
            image=engine.image,
            launch=engine.launch,
        )
        return render(self.spec, release, parts=(RenderPart.SERVING,))

    def versions(self) -> tuple[str, str]:
        stable, canary = (self._led_to(name) for name in (stable_service(NAME), canary_service(NAME)))
        return stable, canary

    def sets_of(self, version: str) -> list[Json]:
        """The LeaderWorkerSets of a version."""
        return self.cluster.list(LEADER_WORKER_SETS, labels=f"{VERSION}={version}")

    def _led_to(self, service: str) -> str:
        found = self.cluster.find(SERVICES, service)
        return str(((found or {}).get("spec") or {}).get("selector", {}).get(VERSION, ""))
