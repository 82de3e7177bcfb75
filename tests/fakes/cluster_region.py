"""A region's fleet in a cluster in memory: the real `ArgoFleet`, client and manifests.

API server and controllers are simulated, and users are counted as the route splits them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fakes.argo.simulation import Simulation
from fakes.kube.api import Api
from fakes.kube.call import Call
from fakes.kube.cluster import FakeCluster
from fakes.kube.faults import Fault, Meanwhile
from fakes.kube.simulated_time import SimulatedTime, Time
from fakes.kube.store import Event
from fakes.kube.transport import FakeTransport
from rollouts.adapters.kube.access import Access, Credential, Server
from rollouts.adapters.kube.client import KubeClient
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.http_route import HttpRoutes
from rollouts.cluster.lease import Carrier
from rollouts.cluster.place import Place
from rollouts.cluster.ports import Render
from rollouts.cluster.virtual_service import VirtualServices
from rollouts.kube.model import Json
from rollouts.kube.resources import REPLICA_SETS, ROLLOUTS
from rollouts.manifests.conventions import POD_TEMPLATE_HASH, VERSION
from rollouts.manifests.parts import Part
from rollouts.manifests.release import Release, Trial
from rollouts.manifests.render import render
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.manifests.traffic_spec import Traffic
from rollouts.model import Engine

NAME, NAMESPACE = "support-llm", "support"
DELIVERER = Carrier(token="delivery-1", who="ci-7 (process 7)")
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
        self.pass_by(self._region.splits[-1])
        return {f"{version}-pod": self._answered.get(version, 0.0)}

    def pass_by(self, split: tuple[int, int]) -> None:
        """Count those who came since the last look, split like that."""
        now = self._region.cluster.time.monotonic()
        came, self._since = (now - self._since) * self.per_second, now
        weight, mirror = split
        stable, canary = self._region.versions()
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
        time: Time | None = None,
        render: Render | None = None,
        users_per_second: float = 0.0,
        patience_seconds: float = 600.0,
    ) -> None:
        self.region = region
        self.spec = spec or a_fleet(region)
        self.time = time or SimulatedTime()
        self.cluster = FakeCluster(region, namespace=NAMESPACE, time=self.time)
        simulated = isinstance(self.time, SimulatedTime)
        self.simulation = Simulation(self.cluster, start_seconds=4 if simulated else 0.2, reacts=simulated)
        self.api = Api(self.cluster)
        self.users = Users(self, per_second=users_per_second)
        self.splits: list[tuple[int, int]] = []
        """What the route gave the canary of users and of copies, change by change."""
        self.split_at: list[float] = []
        """When, in seconds of the cluster's own time."""
        self._routes = VirtualServices() if self.spec.traffic is Traffic.ISTIO else HttpRoutes()
        self._render = render or self.plainly
        self._patience_seconds = patience_seconds
        self._token = "token"
        self.fleet = self.open()
        self.cluster.on_change(self._note)

    def open(self, *, patience_seconds: float | None = None, carrier: Carrier | None = DELIVERER) -> ArgoFleet:
        """Another fleet of the same region, as after a crash or on another machine, by default of the same delivery."""
        place = self.spec.regions[self.region]
        return ArgoFleet(
            Place(
                region=self.region,
                name=NAME,
                entry=place.entry,
                stable_url=place.stable_url,
                canary_url=place.canary_url,
                warm_versions=self.spec.previous.versions if self.spec.previous else None,
                after_abort_seconds=self.spec.canary.after_abort.total_seconds(),
                patience_seconds=self._patience_seconds if patience_seconds is None else patience_seconds,
            ),
            cluster=KubeClient(
                Access(self._credential, self.time),
                namespace=NAMESPACE,
                clock=self.time,
                transport=FakeTransport(self.api),
                chance=lambda: 0.5,
            ),
            routes=self._routes,
            render=self._render,
            clock=self.time,
            served=self.users if self.users.per_second else None,
            carrier=carrier,
        )

    def plainly(self, engine: Engine) -> tuple[Json, ...]:
        """What an engine needs there, with no analysis."""
        release = Release(
            delivery=NAME, region=self.region, version=engine.version, digest=engine.digest, image=engine.image
        )
        return render(self.spec, release, trial=TRIAL, parts=(Part.SERVING,))

    @property
    def rollout(self) -> Json:
        return self.cluster.get(ROLLOUTS, NAME)

    @property
    def route(self) -> Json:
        return self.cluster.get(self._routes.resource, NAME)

    async def _credential(self) -> Credential:
        """As an exec plugin gives it: whatever is valid now."""
        return Credential(Server(f"https://{self.region}.example"), f"Bearer {self._token}")

    def rotate_tokens(self, *, every: int) -> None:
        """After so many requests the token is no longer known, and another one is."""

        def expire(_: Call) -> None:
            self._token = f"token-{len(self.api.calls)}"
            self.api.access.require(self._token)
            self.api.faults.add(Fault(Meanwhile(expire), after=every))

        self.api.faults.add(Fault(Meanwhile(expire), after=every))

    def edit_rollout(self, change: Callable[[Json], object]) -> None:
        """Somebody changes the Rollout."""
        self.cluster.edit(ROLLOUTS, NAME, lambda body: change(body) and None)

    def apply_over(self, engine: Engine, *, manager: str) -> None:
        """Somebody applies that engine's Rollout over what is there, as Argo CD's self-heal does."""
        self.cluster.apply(ROLLOUTS, self._render(engine)[-1], manager=manager, force=True)

    def edit_route(self, change: Callable[[Json], object]) -> None:
        """Somebody changes the route."""
        self.cluster.edit(self._routes.resource, NAME, lambda body: change(body) and None)

    def abort(self, message: str) -> None:
        """The region's own analysis takes its trial back."""
        self.cluster.patch(ROLLOUTS, NAME, {"status": {"abort": True, "message": message}}, subresource="status")

    def versions(self) -> tuple[str, str]:
        """Whom users of the stable reach, and those of the canary; empty for nobody."""
        found = self.cluster.find(ROLLOUTS, NAME)
        status = (found or {}).get("status") or {}
        return self._version(status.get("stableRS", "")), self._version(status.get("currentPodHash", ""))

    def _note(self, event: Event) -> None:
        if event.kind.plural == self._routes.resource.plural and event.name == NAME:
            # Until now they were split as before.
            self.users.pass_by(self.splits[-1] if self.splits else (0, 0))
            now = self._routes.weight(event.after, NAME), self._routes.mirror(event.after, NAME)
            if self.splits[-1:] != [now]:
                self.splits.append(now)
                self.split_at.append(self.cluster.time.monotonic())

    def _version(self, pod_hash: str) -> str:
        found = self.cluster.list(REPLICA_SETS, labels=f"{POD_TEMPLATE_HASH}={pod_hash}") if pod_hash else []
        return str(found[0]["spec"]["template"]["metadata"]["labels"].get(VERSION, "")) if found else ""
