"""`fleet: {kind: argo, ...}` of a delivery: clusters with Argo Rollouts, one for each region.

Its parts about pods and nodes are in `pod_spec`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from rollouts.kube.resources import Resource
from rollouts.manifests.conventions import LONGEST_NAME, TrafficRouter, canary_service, stable_service
from rollouts.manifests.patches import PatchSpec
from rollouts.manifests.pod_spec import (
    CPU,
    GPUS,
    AutoscaleSpec,
    Block,
    GuardSpec,
    Host,
    NodesSpec,
    ObjectName,
    PodSpec,
    WarmPoolSpec,
    host_in,
)
from rollouts.manifests.routers import ROUTERS
from tidegate.core.access import Endpoint, PrometheusEndpoint, Url, conflicts_for_rollouts, endpoint_too
from tidegate.core.model import Loc, SpecConflict, SpecModel, Value
from tidegate.core.names import CANARY
from tidegate.core.units import Duration, format_duration


class PrometheusSpec(PrometheusEndpoint):
    """One Prometheus, as each of those who ask it reaches it: inside a cluster it has another address than outside.

    `url` and its credentials are tidegate's: for gates, proofs, `doctor`.
    """

    rollouts: Endpoint | None = None
    """For the analyses of Argo Rollouts; as tidegate when absent, with the Secrets that its credentials name."""
    keda: Url | None = None
    """For KEDA, which shows no credentials there; that of `rollouts` when absent: both are inside."""

    @property
    def for_rollouts(self) -> PrometheusEndpoint:
        """Rendered into AnalysisTemplates."""
        return self.rollouts or self

    @property
    def for_keda(self) -> str:
        """Rendered into a ScaledObject."""
        return self.keda or self.for_rollouts.url


Prometheus = Annotated[PrometheusSpec, BeforeValidator(endpoint_too, json_schema_input_type=Url | PrometheusSpec)]


class ClusterRegionSpec(SpecModel):
    """One region: a cluster, and the addresses that a delivery asks."""

    context: str = Field(default="", pattern=r"^\S*$")
    """Of the kubeconfig; the current one, or the cluster that tidegate runs in, when empty."""
    entry: Url
    """Where users of the region ask."""
    prometheus: Prometheus
    """It has the metrics of this region's engines: one address, or one for each of those who ask."""

    @property
    def arms(self) -> Mapping[str, str]:
        """The addresses of single arms, by their keys, whatever the weights."""
        raise NotImplementedError


class FleetValidationContext(Value):
    """The parts of a delivery that its fleet has to fit."""

    name: str
    regions: tuple[str, ...]
    bake: timedelta
    accelerator: str
    analysed: bool = False
    """Whether Argo Rollouts is to watch SLOs."""
    same_image: bool = False
    """Whether `engine.image` names one image for all versions."""
    asks_engines: tuple[str, ...] = ()
    """Stages that ask engines of one arm."""
    copies: bool = False
    """Whether a stage copies users' requests."""


class ClusterFleetSpec(SpecModel):
    """A fleet on Kubernetes, whoever applies its objects."""

    kind: Literal["argo", "route"]
    namespace: ObjectName
    """The same in every region's cluster; it is there already."""
    regions: Mapping[ObjectName, ClusterRegionSpec] = Field(min_length=1)
    traffic: TrafficRouter = TrafficRouter.GATEWAY_API
    unattended: Duration = timedelta(minutes=15)
    """How long a trial may go on in a region where nobody heard of the one who carries it; longer
    than `patience.api`."""
    guard: GuardSpec | None = GuardSpec()
    """What ends a trial that has gone on for so long; null renders none."""

    @property
    def engine_starts_within(self) -> timedelta:
        """How long an engine may take from its container's begin to its first answer."""
        raise NotImplementedError

    @property
    def route_kind(self) -> Resource:
        """The kind of object that splits users."""
        return ROUTERS[self.traffic].resource

    def arm_services(self, delivery: str) -> Mapping[str, str]:
        """The Services behind which each arm answers, by what addresses of its own would be called; or none."""
        raise NotImplementedError

    @property
    def runs_images(self) -> bool:
        """Whether a version is started by its image; else somebody else starts it."""
        return True

    def one_cluster_twice(self, why: str) -> Iterator[SpecConflict]:
        """Two regions in one cluster, where `why` there can be but one."""
        clusters: dict[str, str] = {}
        for name, region in self.regions.items():
            other = clusters.setdefault(region.context, name)
            if other != name:
                found = f"the cluster of {other}, where {why}"
                yield SpecConflict(("regions", name, "context"), found, "a context of its own for each region")

    @staticmethod
    def gone_too_soon(where: Loc, keep: timedelta | None, context: FleetValidationContext) -> Iterator[SpecConflict]:
        """Engines to go back to that end while a region is still watched."""
        if keep and keep <= context.bake:
            expected = f"more than `regions.bake`, which is {format_duration(context.bake)}"
            yield SpecConflict(where, f"{format_duration(keep)}: gone before the bake ends", expected)

    def conflicts_with(self, context: FleetValidationContext) -> Iterator[SpecConflict]:
        """What does not fit the rest of the delivery, each with its place below `fleet`: regions of no wave, and waves
        with others.
        """
        for region in self.regions:
            if region not in context.regions:
                yield SpecConflict(("regions", region), "a region of no wave", "one of " + ", ".join(context.regions))
        for region in context.regions:
            if region not in self.regions:
                yield SpecConflict(("regions",), f"no {region}", "every region of every wave")


class RolloutRegion(ClusterRegionSpec):
    """One region of a Rollout."""

    stable_url: Url | None = None
    """Where the stable answers, whatever the weights; for stages that ask engines, which ask the Services through the
    API server where this is absent."""
    canary_url: Url | None = None
    """Where the canary answers, whatever the weights."""

    @property
    def arms(self) -> Mapping[str, str]:
        found = {"stable_url": self.stable_url, "canary_url": self.canary_url}
        return {key: url for key, url in found.items() if url}

    def contradictions(self) -> Iterator[SpecConflict]:
        """An arm without an address of its own."""
        if self.arms and len(set(self.arms.values())) < 2:
            expected = "stable_url and canary_url, each an address at which one of the two answers; or neither"
            yield SpecConflict(("canary_url",), str(self.canary_url or "nothing"), expected)


class RegionSpec(RolloutRegion):
    """One region of Rollouts that tidegate renders."""

    replicas: int | None = Field(default=None, ge=1)
    """Engines of this region; as `fleet.replicas` when absent."""


PROXIES_IN = ("envoy-gateway-system", "istio-system")
"""Where Envoy Gateway runs every gateway's proxies, and where Istio's own ingress is, unless they were told otherwise.

A policy that names a namespace that is not there lets nobody in by it.
"""


class GatewaySpec(SpecModel):
    """The gateway that is there already, and the hosts that are this delivery's."""

    name: ObjectName
    namespace: ObjectName | None = None
    """The delivery's own when absent."""
    pods_in: tuple[ObjectName, ...] = PROXIES_IN
    """Namespaces where its proxies run, whom engines let in, besides its own."""
    listener: ObjectName | None = None
    """Its `sectionName`; all listeners when absent. Istio has none."""
    hosts: tuple[Host, ...] = ()
    """Names under which users ask for this model, besides that of their region's `entry`."""
    timeout: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """For a whole answer. Gateways cut a stream after 15 s or so when nobody says more."""


class NetworkSpec(SpecModel):
    """Who may talk to engines, and to whom they may talk; all others may not."""

    ingress_from: tuple[ObjectName, ...] = ("monitoring",)
    """Namespaces besides the gateway's and its proxies': of Prometheus, and of anyone else who may ask."""
    egress_to: tuple[Block, ...] = ()
    """Blocks of addresses such as 10.20.0.0/16, of the artifact store, when weights are pulled at start."""


class PreviousSpec(SpecModel):
    """Versions that were stable, kept warm so that going back needs no start; each holds all its GPUs."""

    keep: Duration = Field(default=timedelta(hours=2), gt=timedelta(0))
    """How long after a promotion; at least as long as the bake."""


class CanarySpec(SpecModel):
    """The engines of a version on trial."""

    replicas: int | None = Field(default=None, ge=1)
    """While it gets copies only; as many as the copied share asks for when absent."""
    after_abort: Duration = Field(default=timedelta(minutes=5), gt=timedelta(0))
    """How long its engines stay up after they were rolled back, to be looked at; they hold GPUs. To Argo Rollouts, 0
    would mean for ever."""


class ArgoFleetSpec(ClusterFleetSpec):
    """A fleet on Kubernetes whose objects tidegate renders."""

    kind: Literal["argo"]
    regions: Mapping[ObjectName, RegionSpec] = Field(min_length=1)
    gateway: GatewaySpec
    replicas: int = Field(default=2, ge=1)
    """Engines of each region. With `autoscale` the number that is planned with; the cluster decides by load."""
    autoscale: AutoscaleSpec | None = None
    canary: CanarySpec = CanarySpec()
    previous: PreviousSpec | None = PreviousSpec()
    """Null keeps none: going back then has to wait for starts."""
    pod: PodSpec = PodSpec()
    nodes: NodesSpec = NodesSpec()
    warm_pool: WarmPoolSpec | None = None
    network: NetworkSpec | None = NetworkSpec()
    """Null renders no NetworkPolicy for engines."""
    unavailable: int | None = Field(default=1, ge=1)
    """Engines that may be away at once while nodes are drained; null renders no PodDisruptionBudget."""
    driver: bool = False
    """Whether a service account is rendered that has a delivery's rights and no others, for tidegate to act as. A
    `workflow` and `admission` bring it too."""
    admission: bool = False
    """Whether API servers hold tidegate to its own objects, and engines' pods to their images. Kubernetes 1.30."""
    patches: tuple[PatchSpec, ...] = ()
    """Changes of yours to what is rendered, applied last."""

    @property
    def engine_starts_within(self) -> timedelta:
        return self.pod.start_within

    def arm_services(self, delivery: str) -> Mapping[str, str]:
        return {"stable_url": stable_service(delivery), "canary_url": canary_service(delivery)}

    def replicas_in(self, region: str) -> int:
        """Engines of `region`, before any autoscaling."""
        return self.regions[region].replicas or self.replicas

    def contradictions(self) -> Iterator[SpecConflict]:
        """What Argo Rollouts refuses or silently does not do, and what would leave users without engines."""
        wanted = {("replicas",): self.replicas} | {
            ("regions", name, "replicas"): region.replicas for name, region in self.regions.items() if region.replicas
        }
        for where, replicas in wanted.items():
            if self.autoscale and not self.autoscale.min_replicas <= replicas <= self.autoscale.max_replicas:
                bounds = f"{self.autoscale.min_replicas} to {self.autoscale.max_replicas}, as `autoscale` says"
                yield SpecConflict(where, str(replicas), bounds)
            if self.unavailable and self.unavailable >= replicas > 1:
                found = f"{self.unavailable} of {replicas} engines"
                yield SpecConflict(("unavailable",), found, f"at most {replicas - 1}, or draining nodes takes them all")
        yield from self.one_cluster_twice("the same namespace has its Rollout already")
        for name, region in self.regions.items():
            if not self.gateway.hosts and not host_in(region.entry):
                expected = "an address with a name, or gateway.hosts"
                yield SpecConflict(("regions", name, "entry"), region.entry, expected)

    def conflicts_with(self, context: FleetValidationContext) -> Iterator[SpecConflict]:
        yield from super().conflicts_with(context)
        # Those who ask from inside, and cannot say who they are.
        for name, region in self.regions.items():
            asked, where = region.prometheus, ("regions", name, "prometheus")
            rollouts = ("rollouts",) if asked.rollouts else ()
            for each in conflicts_for_rollouts(asked.for_rollouts) if context.analysed else ():
                yield SpecConflict((*where, *rollouts, *each.where), each.found, each.expected)
            if self.autoscale and asked.keda is None and (asked.for_rollouts.auth or asked.for_rollouts.tenant):
                expected = "an address under `keda`; a patch of the ScaledObject names your TriggerAuthentication"
                yield SpecConflict((*where, *rollouts), "credentials or a tenant, which KEDA does not say", expected)
        nodes, accelerator = self.nodes, context.accelerator
        if accelerator == CPU and nodes.karpenter:
            yield SpecConflict(("nodes", "karpenter"), "a pool of nodes with GPUs for a CPU", "an `engine.accelerator`")
        if accelerator != CPU and nodes.gpu_labels not in (labellers := GPUS.get(accelerator, {})):
            found = f"{nodes.gpu_labels}, which never labels a node with {accelerator}"
            yield SpecConflict(("nodes", "gpu_labels"), found, " or ".join(labellers) or "another accelerator")
        longest = LONGEST_NAME - len(CANARY) - 1
        if len(context.name) > longest:
            yield SpecConflict((), f"a delivery whose name has {len(context.name)} characters", f"at most {longest}")
        yield from self.gone_too_soon(("previous", "keep"), self.previous.keep if self.previous else None, context)
