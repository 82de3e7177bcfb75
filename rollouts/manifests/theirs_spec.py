"""`fleet: {kind: argo, rollout: ...}` and `fleet: {kind: route, ...}` of a delivery: objects of others, by reference.

Nothing of them is taken over. Of a Rollout tidegate changes the fields of the pod template that `set` names, moves its
steps, aborts and promotes. Of two backends of one HTTPRoute, with engines of somebody else behind them, one has all
users; the other one gets the next version, and a promotion swaps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rollouts.manifests.conventions import TrafficRouter
from rollouts.manifests.pod_spec import ObjectName
from rollouts.manifests.spec import ClusterFleetSpec, ClusterRegionSpec, FleetValidationContext, RolloutRegion
from rollouts.model import Engine
from tidegate.core.access import Url
from tidegate.core.metrics import VERSION_PLACE, ArmLabels, MetricSource, PresetName
from tidegate.core.model import Loc, SpecConflict, SpecModel
from tidegate.core.units import Duration, format_duration

PLACES = ("{image}", "{version}", "{digest}")
"""What a field may be made of: the engine's image, the number of the model version, the digest of its files."""


def _with_place(text: str) -> str:
    rest = text
    for place in PLACES:
        rest = rest.replace(place, "")
    if rest == text or "{" in rest or "}" in rest:
        raise ValueError(f"text with at least one of {', '.join(PLACES)}, and no other braces")
    return text


FieldText = Annotated[str, AfterValidator(_with_place), Field(max_length=500)]


def filled(text: str, engine: Engine) -> str:
    """A field's text for that engine."""
    # Of a change of the engine alone the name has more than the version's number.
    said = (engine.image, engine.version.partition("-")[0], engine.digest)
    for place, value in zip(PLACES, said, strict=True):
        text = text.replace(place, value)
    return text


class SetSpec(SpecModel):
    """Fields of the container that say which version it serves; their template has each of them already."""

    image: FieldText | None = None
    args: Mapping[Annotated[str, Field(pattern=r"^-[^\s=]+$")], FieldText] = {}
    """By the argument's name, such as `--revision`; in `args` or `command` of the container."""
    env: Mapping[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")], FieldText] = {}
    """By the variable's name; it has a value, not a reference."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Nothing to set."""
        if not self.fields:
            yield SpecConflict((), "nothing", "image, args or env: what of the container differs between two versions")

    @property
    def fields(self) -> Mapping[str, str]:
        """The text of each by what it is called: `image`, `--revision`, `$MODEL`."""
        image = {"image": self.image} if self.image else {}
        return {**image, **self.args, **{f"${name}": text for name, text in self.env.items()}}


class RolloutReference(SpecModel):
    """A Rollout that somebody else applies, the same in every region."""

    name: ObjectName
    container: ObjectName
    """The one that serves, in its pod template."""
    workload: ObjectName | None = None
    """The Deployment whose pod template it has, as its `workloadRef` says; None where it has its own."""
    set: SetSpec = SetSpec(image="{image}")
    stable_service: ObjectName
    canary_service: ObjectName
    route: ObjectName
    """The HTTPRoute or VirtualService whose weights its controller moves."""

    @property
    def services(self) -> tuple[str, str]:
        """Both, or the InferencePools of the same names that users reach."""
        return self.stable_service, self.canary_service


class TheirsFleetSpec(ClusterFleetSpec):
    """A fleet whose objects somebody else applies."""

    start_within: Duration = timedelta(minutes=30)
    """How long a version may take from being asked for until all its engines are ready."""

    @property
    def engine_starts_within(self) -> timedelta:
        return self.start_within

    @property
    def sources(self) -> tuple[MetricSource, ...]:
        """Which series are read unless `metrics.sources` says others; `{version}` stands for a value of its label."""
        arms = ArmLabels(label=self.arm_label, stable=VERSION_PLACE, canary=VERSION_PLACE, shadow=VERSION_PLACE)
        return (MetricSource(preset=PresetName.VLLM, arms=arms),)

    @property
    def arm_label(self) -> str:
        """Of series in Prometheus: it tells engines of the two arms apart."""
        raise NotImplementedError

    @staticmethod
    def one_image_twice(where: Loc, texts: Iterable[str], context: FleetValidationContext) -> Iterator[SpecConflict]:
        """Nothing that is set tells two versions apart."""
        if context.same_image and all(text == "{image}" for text in texts):
            expected = "an argument, variable or field with {version} or {digest} too, or an image for each version"
            yield SpecConflict(where, "the image alone, and `engine.image` is one for all versions", expected)


POD_HASH = "rollouts_pod_template_hash"
"""Of the label `rollouts-pod-template-hash` of pods, as a PodMonitor with it in `podTargetLabels` brings it.

No label of others says which version a pod serves."""


class ReferencedFleetSpec(TheirsFleetSpec):
    """Rollouts of others on Kubernetes."""

    kind: Literal["argo"]
    rollout: RolloutReference
    regions: Mapping[ObjectName, RolloutRegion] = Field(min_length=1)

    @property
    def arm_label(self) -> str:
        return POD_HASH

    def arm_services(self, delivery: str) -> Mapping[str, str]:  # noqa: ARG002  # Services have names of their own
        return dict(zip(("stable_url", "canary_url"), self.rollout.services, strict=True))

    def contradictions(self) -> Iterator[SpecConflict]:
        """Two regions in one cluster."""
        yield from self.one_cluster_twice("this is the same Rollout")

    def conflicts_with(self, context: FleetValidationContext) -> Iterator[SpecConflict]:
        yield from super().conflicts_with(context)
        yield from self.one_image_twice(("rollout", "set"), self.rollout.set.fields.values(), context)


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
    """Where engines of each peer answer, whatever the weights; for stages that ask engines, which ask the Services
    through the API server where this is absent."""

    @property
    def arms(self) -> Mapping[str, str]:
        return {f"urls.{name}": url for name, url in self.urls.items()}


class RouteFleetSpec(RouteReference, TheirsFleetSpec):
    """Two backends of one HTTPRoute in each cluster."""

    kind: Literal["route"]
    label: str = Field(default="service", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Of series in Prometheus: it tells engines of the two peers apart."""
    keep: Duration | None = Field(default=None, gt=timedelta(0))
    """How long a peer that lost its users keeps its engines, until the guard scales its workload down; without it they
    stay until it gets the next version."""
    regions: Mapping[ObjectName, RouteRegion] = Field(min_length=1)

    @property
    def reference(self) -> RouteReference:
        """The route and its peers."""
        return RouteReference(route=self.route, peers=self.peers)

    @property
    def arm_label(self) -> str:
        return self.label

    def arm_services(self, delivery: str) -> Mapping[str, str]:  # noqa: ARG002  # Services have names of their own
        services = {name: each.backend for name, each in self.peers.items() if each.kind is BackendKind.SERVICE}
        return services if len(services) == len(self.peers) else {}

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
        yield from self.gone_too_soon(("keep",), self.keep, context)
        if self.keep and not any(each.workload for each in self.peers.values()):
            yield SpecConflict(("keep",), format_duration(self.keep), "a peer with a workload")
        for name, peer in self.peers.items():
            if peer.workload:
                where = ("peers", name, "workload", "set")
                yield from self.one_image_twice(where, peer.workload.set.values(), context)
            if context.copies and peer.kind is BackendKind.POOL:
                expected = "no stage `shadow`, or Services: a copy goes past an endpoint picker"
                yield SpecConflict(("peers", name, "kind"), "an InferencePool, and copies of requests", expected)
        for name, region in self.regions.items():
            if context.asks_engines and not region.urls and not self.arm_services(context.name):
                expected = f"an address of each peer: {', '.join(context.asks_engines)} ask one arm alone"
                yield SpecConflict(("regions", name, "urls"), "none", expected)
