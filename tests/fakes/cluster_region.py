"""A region's fleet in a cluster in memory: the real `ArgoFleet`, client and manifests.

API server and controllers are simulated, and users are counted as the route splits them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fakes.argo.simulation import Simulation
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.simulated_time import SimulatedTime
from fakes.kube.transport import FakeTransport
from rollouts.adapters.kube.access import Access
from rollouts.adapters.kube.client import KubeClient
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.http_route import HttpRoutes
from rollouts.cluster.place import Place
from rollouts.cluster.virtual_service import VirtualServices
from rollouts.kube.model import Json
from rollouts.kube.resources import HTTP_ROUTES, REPLICA_SETS, ROLLOUTS, VIRTUAL_SERVICES
from rollouts.manifests.conventions import POD_TEMPLATE_HASH, VERSION
from rollouts.manifests.parts import Part
from rollouts.manifests.release import Release, Trial
from rollouts.manifests.render import render
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.manifests.traffic_spec import Traffic
from rollouts.model import Engine

NAME, NAMESPACE = "support-llm", "support"
TRIAL = Trial(mirror=100, weights=(5, 25, 50))


def an_image(version: str, *, digest: str | None = None) -> Engine:
    """An engine as clusters run them."""
    image = f"registry.example/support-llm@sha256:{version.zfill(64)}"
    return Engine(version=version, digest=digest or f"sha256-of-{version}", model=NAME, image=image)


def a_fleet(*regions: str, **changes: Any) -> ArgoFleetSpec:
    """The `fleet` of a delivery; `changes` are fields of it."""
    plain: Json = {
        "kind": "argo",
        "namespace": NAMESPACE,
        "gateway": {"name": "public", "hosts": ["support.example"]},
        "regions": {
            name: {
                "context": name,
                "entry": f"https://{name}.example",
                "stable_url": f"https://stable.{name}.example",
                "canary_url": f"https://canary.{name}.example",
                "prometheus": f"https://prometheus.{name}.example",
            }
            for name in regions
        },
    }
    return ArgoFleetSpec.model_validate(plain | changes)


class Users:
    """Users of a region at a steady pace, counted by the engine that answers them; a `Served`.

    They are split as the route says, unless the gateway does not heed it.
    """

    def __init__(self, region: ClusterRegion, *, per_second: float) -> None:
        self._region = region
        self.per_second = per_second
        self.obeys_weights = True
        self.obeys_mirror = True
        self._since = 0.0
        self._answered: dict[str, float] = {}

    async def served(self, version: str) -> Mapping[str, float]:
        self.pass_by()
        return {f"{version}-pod": self._answered.get(version, 0.0)}

    def pass_by(self) -> None:
        """Count those who came since the last look."""
        now = self._region.cluster.time.monotonic()
        came, self._since = (now - self._since) * self.per_second, now
        stable, canary, weight, mirror = self._region.split()
        if not self.obeys_weights:
            weight = 50
        self._count(stable, came * (100 - weight) / 100)
        copied = came * mirror / 100 if self.obeys_mirror else 0
        self._count(canary, came * weight / 100 + copied)

    def _count(self, version: str, came: float) -> None:
        self._answered[version] = self._answered.get(version, 0.0) + came


class ClusterRegion:
    """One region: its cluster, who lives there, and the fleet that a delivery is given."""

    def __init__(
        self,
        region: str = "eu-west-1",
        *,
        spec: ArgoFleetSpec | None = None,
        time: SimulatedTime | None = None,
        trial: Trial = TRIAL,
        users_per_second: float = 0.0,
        analyses: Sequence[Json] = (),
        patience_seconds: float = 600.0,
    ) -> None:
        self.region = region
        self.spec = spec or a_fleet(region)
        self.time = time or SimulatedTime()
        self.cluster = FakeCluster(region, namespace=NAMESPACE, time=self.time)
        self.simulation = Simulation(self.cluster)
        self.api = Api(self.cluster)
        self.users = Users(self, per_second=users_per_second)
        self._routes = VirtualServices() if self.spec.traffic is Traffic.ISTIO else HttpRoutes()
        self._trial, self._analyses = trial, tuple(analyses)
        self._patience_seconds = patience_seconds
        self.fleet = self.open()

    def open(self) -> ArgoFleet:
        """Another fleet of the same region, as after a crash or on another machine."""
        place = self.spec.regions[self.region]
        return ArgoFleet(
            Place(
                region=self.region,
                name=NAME,
                entry=place.entry,
                stable_url=place.stable_url,
                canary_url=place.canary_url,
                patience_seconds=self._patience_seconds,
            ),
            cluster=KubeClient(
                Access.fixed(f"https://{self.region}.example", clock=self.time),
                namespace=NAMESPACE,
                clock=self.time,
                transport=FakeTransport(self.api),
                chance=lambda: 0.5,
            ),
            routes=self._routes,
            render=self._render,
            clock=self.time,
            served=self.users if self.users.per_second else None,
        )

    def _render(self, engine: Engine) -> tuple[Json, ...]:
        release = Release(
            delivery=NAME, region=self.region, version=engine.version, digest=engine.digest, image=engine.image
        )
        return render(self.spec, release, trial=self._trial, analyses=self._analyses, parts=(Part.SERVING,))

    @property
    def rollout(self) -> Json:
        return self.cluster.get(ROLLOUTS, NAME)

    @property
    def route(self) -> Json:
        return self.cluster.get(VIRTUAL_SERVICES if self.spec.traffic is Traffic.ISTIO else HTTP_ROUTES, NAME)

    def split(self) -> tuple[str, str, int, int]:
        """Versions of stable and canary, and what the route gives the canary of users and of copies."""
        status = self.rollout.get("status") or {}
        stable, canary = (self._version(status.get(key, "")) for key in ("stableRS", "currentPodHash"))
        return stable, canary, self._routes.weight(self.route, NAME), self._routes.mirror(self.route, NAME)

    def _version(self, pod_hash: str) -> str:
        found = self.cluster.list(REPLICA_SETS, labels=f"{POD_TEMPLATE_HASH}={pod_hash}") if pod_hash else []
        return str(found[0]["spec"]["template"]["metadata"]["labels"][VERSION]) if found else ""
