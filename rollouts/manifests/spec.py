"""`fleet: {kind: argo, ...}` of a delivery: clusters with Argo Rollouts, one for each region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from rollouts.manifests.nodes_spec import NodesSpec
from rollouts.manifests.pod_spec import PodSpec
from rollouts.manifests.scaling_spec import AutoscaleSpec, WarmPoolSpec
from rollouts.manifests.traffic_spec import GatewaySpec, NetworkSpec, Traffic
from rollouts.manifests.written import ObjectName, Url, host_in
from tidegate.core.model import Contradiction, SpecModel
from tidegate.core.quantities import Duration


class Strategy(StrEnum):
    """How a version becomes stable."""

    CANARY = "canary"
    """A little traffic at a time."""
    BLUE_GREEN = "blue-green"
    """Copies of requests at most, then all users at once."""


class PrometheusSpec(SpecModel):
    """One Prometheus, as each of those who ask it reaches it: inside a cluster it has another address than outside."""

    url: Url
    """For tidegate: gates, proofs, `doctor`."""
    rollouts: Url | None = None
    """For the analyses of Argo Rollouts; as `url` when absent."""
    keda: Url | None = None
    """For KEDA; as `rollouts` when absent: both are inside."""

    @property
    def for_rollouts(self) -> str:
        """Rendered into AnalysisTemplates."""
        return self.rollouts or self.url

    @property
    def for_keda(self) -> str:
        """Rendered into a ScaledObject."""
        return self.keda or self.for_rollouts


def _for_all(address: object) -> object:
    """A single address is everybody's."""
    return {"url": address} if isinstance(address, str) else address


Prometheus = Annotated[PrometheusSpec, BeforeValidator(_for_all, json_schema_input_type=Url | PrometheusSpec)]


class RegionSpec(SpecModel):
    """One region: a cluster, and the addresses that a delivery asks."""

    context: str = Field(default="", pattern=r"^\S*$")
    """Of the kubeconfig; the current one, or the cluster that tidegate runs in, when empty."""
    entry: Url
    """Where users of the region ask."""
    stable_url: Url
    """Where the stable answers, whatever the weights."""
    canary_url: Url
    """Where the canary answers, whatever the weights."""
    prometheus: Prometheus
    """It has the metrics of this region's engines: one address, or one for each of those who ask."""
    replicas: int | None = Field(default=None, ge=1)
    """Engines of this region; as `fleet.replicas` when absent."""


class PreviousSpec(SpecModel):
    """Versions that were stable, kept warm so that going back needs no start."""

    versions: int = Field(default=2, ge=1, le=5)
    """How many; each holds the GPUs of all its engines."""
    keep: Duration = Field(default=timedelta(hours=2), gt=timedelta(0))
    """How long after a promotion; at least as long as the bake."""


class CanarySpec(SpecModel):
    """The engines of a version on trial."""

    replicas: int | None = Field(default=None, ge=1)
    """While it gets copies only; as many as the copied share asks for when absent."""
    least: int = Field(default=1, ge=1)
    """Never fewer, whatever its weight: a canary without a ready engine loses its routes."""
    after_abort: Duration = Field(default=timedelta(minutes=5), gt=timedelta(0))
    """How long its engines stay up after they were taken back, to be looked at; they hold GPUs. To Argo Rollouts, 0
    would mean for ever."""
    dynamic_stable: bool = False
    """Give the stable's engines away as users leave it: saves GPUs, and going back has to wait for starts."""


class ArgoFleetSpec(SpecModel):
    """A fleet on Kubernetes."""

    kind: Literal["argo"]
    namespace: ObjectName
    """The same in every region's cluster; it is there already."""
    regions: Mapping[ObjectName, RegionSpec] = Field(min_length=1)
    strategy: Strategy = Strategy.CANARY
    traffic: Traffic = Traffic.GATEWAY_API
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
    network: NetworkSpec = NetworkSpec()
    priority: int = Field(default=1000, ge=1, le=1_000_000_000)
    """Of engines' pods; placeholders have less than any."""
    unavailable: int = Field(default=1, ge=1)
    """Engines that may be away at once while nodes are drained."""
    patience: Duration | None = None
    """The older name of `patience.api`."""
    unattended: Duration = timedelta(minutes=15)
    """How long a trial may go on in a region where nobody heard of whoever carries it; longer than `patience.api`."""

    def replicas_in(self, region: str) -> int:
        """Engines of `region`, before any autoscaling."""
        return self.regions[region].replicas or self.replicas

    def contradictions(self) -> Iterator[Contradiction]:
        """What Argo Rollouts refuses or silently does not do, and what would leave users without engines."""
        yield from self._around_numbers()
        yield from self._around_going_back()
        yield from self._around_regions()

    def _around_numbers(self) -> Iterator[Contradiction]:
        wanted = {("replicas",): self.replicas} | {
            ("regions", name, "replicas"): region.replicas for name, region in self.regions.items() if region.replicas
        }
        for where, replicas in wanted.items():
            if self.autoscale and not self.autoscale.least <= replicas <= self.autoscale.most:
                bounds = f"{self.autoscale.least} to {self.autoscale.most}, as `autoscale` says"
                yield Contradiction(where, str(replicas), bounds)
            if self.unavailable >= replicas > 1:
                found = f"{self.unavailable} of {replicas} engines"
                yield Contradiction(
                    ("unavailable",), found, f"at most {replicas - 1}, or draining nodes takes them all"
                )

    def _around_regions(self) -> Iterator[Contradiction]:
        clusters: dict[str, str] = {}
        for name, region in self.regions.items():
            other = clusters.setdefault(region.context, name)
            if other != name:
                found = f"the cluster of {other}, where the same namespace has its Rollout already"
                yield Contradiction(("regions", name, "context"), found, "a context of its own for each region")
            if region.stable_url == region.canary_url:
                where = ("regions", name, "canary_url")
                yield Contradiction(where, "the stable's address", "an address at which the canary alone answers")
            for key, url in {"stable_url": region.stable_url, "canary_url": region.canary_url}.items():
                if self.gateway.direct and not host_in(url):
                    yield Contradiction(("regions", name, key), url, "a host that the gateway can tell by its name")
            if not self.gateway.hosts and not host_in(region.entry):
                expected = "an address with a name, or gateway.hosts"
                yield Contradiction(("regions", name, "entry"), region.entry, expected)

    def _around_going_back(self) -> Iterator[Contradiction]:
        if self.canary.replicas and self.canary.replicas < self.canary.least:
            found = f"{self.canary.replicas}, which Argo Rollouts does not raise"
            yield Contradiction(("canary", "replicas"), found, f"at least `least`, which is {self.canary.least}")
        if self.canary.dynamic_stable and self.strategy is Strategy.BLUE_GREEN:
            yield Contradiction(("canary", "dynamic_stable"), "with blue-green", "strategy: canary")
        if self.canary.dynamic_stable and self.previous:
            found = "with versions that are kept warm, which Argo Rollouts refuses"
            yield Contradiction(("canary", "dynamic_stable"), found, "false, or `previous: null`")
