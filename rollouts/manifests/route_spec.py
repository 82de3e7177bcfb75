"""`fleet: {kind: route, ...}` of a delivery: two backends of one HTTPRoute, and engines of somebody else behind them.

One of the two has all users; the other one gets the next version, and a promotion swaps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from rollouts.manifests.conventions import TrafficRouter
from rollouts.manifests.fields import ObjectName
from rollouts.manifests.reference_spec import FieldText, TheirsFleetSpec
from rollouts.manifests.spec import ClusterRegionSpec, FleetValidationContext
from tidegate.core.access import Url
from tidegate.core.model import SpecConflict, SpecModel

Pointer = Annotated[str, Field(pattern=r"^(/([^~/]|~[01])+)+$", max_length=500)]
"""A JSON pointer (RFC 6901) to a field of an object."""


class BackendKind(StrEnum):
    """What a backend of a route is."""

    SERVICE = "Service"
    POOL = "InferencePool"
    """Of `inference.networking.k8s.io/v1`, with an endpoint picker of its own."""


class WorkloadKind(StrEnum):
    """What runs the engines behind a backend."""

    DEPLOYMENT = "Deployment"
    LEADER_WORKER_SET = "LeaderWorkerSet"
    LLM_INFERENCE_SERVICE = "LLMInferenceService"


class WorkloadSpec(SpecModel):
    """An object of others by which tidegate starts a version: fields that it has already are set."""

    kind: WorkloadKind = WorkloadKind.DEPLOYMENT
    name: ObjectName
    set: Mapping[Pointer, FieldText] = Field(min_length=1)
    """By JSON pointer: the fields that differ from one version to the next."""
    replicas: Pointer = "/spec/replicas"
    """Where it says how many engines it has; one that has none gets as many as the other peer's."""


class PeerSpec(SpecModel):
    """One of the two backends."""

    backend: ObjectName
    """Its name, in the delivery's namespace."""
    kind: BackendKind = BackendKind.SERVICE
    series: str = Field(min_length=1, max_length=200, pattern=r'^[^"\\\n]+$')
    """The value that `fleet.label` has in the series of its engines."""
    workload: WorkloadSpec | None = None
    """What tidegate starts a version by; without one others do, and tidegate waits until the backend is ready."""


class RouteReference(SpecModel):
    """The same in every region."""

    route: ObjectName
    """The HTTPRoute whose weights are moved."""
    peers: Mapping[ObjectName, PeerSpec] = Field(min_length=2, max_length=2)

    def other(self, peer: str) -> str:
        """The name of the other one."""
        return next(name for name in self.peers if name != peer)


class RouteRegion(ClusterRegionSpec):
    """One region with such a route."""

    urls: Mapping[ObjectName, Url] = {}
    """Where engines of each peer answer, whatever the weights; for stages that ask engines."""

    @property
    def arms(self) -> Mapping[str, str]:
        return {f"urls.{name}": url for name, url in self.urls.items()}


class RouteFleetSpec(RouteReference, TheirsFleetSpec):
    """Two backends of one HTTPRoute in each cluster."""

    kind: Literal["route"]
    label: str = Field(default="service", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Of series in Prometheus: it tells engines of the two peers apart."""
    regions: Mapping[ObjectName, RouteRegion] = Field(min_length=1)

    @property
    def reference(self) -> RouteReference:
        """The route and its peers."""
        return RouteReference(route=self.route, peers=self.peers)

    @property
    def arm_label(self) -> str:
        return self.label

    @property
    def runs_images(self) -> bool:
        texts = (text for each in self.peers.values() if each.workload for text in each.workload.set.values())
        return any("{image}" in text for text in texts)

    def contradictions(self) -> Iterator[SpecConflict]:
        """Two regions in one cluster, peers that cannot be told apart, addresses of one peer alone."""
        yield from self.one_cluster_twice("this is the same route")
        if self.traffic is not TrafficRouter.GATEWAY_API:
            yield SpecConflict(("traffic",), str(self.traffic), "gateway-api: an HTTPRoute has the two backends")
        (first, one), (second, two) = self.peers.items()
        for field in ("backend", "series"):
            if getattr(one, field) == getattr(two, field):
                yield SpecConflict(("peers", second, field), f"that of {first}", "one of its own for each peer")
        named = [(each.workload.kind, each.workload.name) for each in (one, two) if each.workload]
        if len(named) != len(set(named)):
            yield SpecConflict(("peers", second, "workload", "name"), f"that of {first}", "a workload for each peer")
        for name, region in self.regions.items():
            if region.urls and (set(region.urls) != set(self.peers) or len(set(region.urls.values())) != 2):
                expected = f"an address for {first} and another for {second}, or none"
                yield SpecConflict(("regions", name, "urls"), ", ".join(region.urls), expected)

    def conflicts_with(self, context: FleetValidationContext) -> Iterator[SpecConflict]:
        yield from super().conflicts_with(context)
        for name, peer in self.peers.items():
            if peer.workload:
                where = ("peers", name, "workload", "set")
                yield from self.one_image_twice(where, peer.workload.set.values(), context)
            if context.copies and peer.kind is BackendKind.POOL:
                expected = "no stage `shadow`, or Services: a copy goes past an endpoint picker"
                yield SpecConflict(("peers", name, "kind"), "an InferencePool, and copies of requests", expected)
        for name, region in self.regions.items():
            if context.asks_engines and not region.urls:
                expected = f"an address of each peer: {', '.join(context.asks_engines)} ask one arm alone"
                yield SpecConflict(("regions", name, "urls"), "none", expected)
