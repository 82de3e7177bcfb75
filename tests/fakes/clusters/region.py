"""A region's fleet in a cluster in memory: the real `ArgoFleet`, client and manifests, and what others have there.

API server and controllers are simulated, and users are counted as the route splits them. The others: a release of
Helm's that serves users under the very names of a delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from fakes.argo.simulation import Simulation
from fakes.clock import SimulatedTime, Time
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster, Kept
from fakes.kube.server import FakeTransport
from fakes.kube.store import Event

from rollouts.cluster.carrier import Carrier
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.guard import Guard
from rollouts.cluster.model import RegionConfig, Render
from rollouts.kube.client import KubeClient
from rollouts.kube.credentials import ApiServer, Credential, CredentialProvider
from rollouts.kube.objects import is_ready, labels_of, selects
from rollouts.kube.resources import (
    HTTP_ROUTES,
    MANAGER,
    PODS,
    REPLICA_SETS,
    ROLLOUTS,
    SERVICES,
    VIRTUAL_SERVICES,
    resource_of,
)
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.manifest import Release
from rollouts.manifests.render import render
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH, VERSION

NAME, NAMESPACE = "support-llm", "support"
DELIVERER = Carrier(token="delivery-1", who="ci-7 (process 7)")


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


@dataclass(frozen=True)
class KeptRegion:
    """All that makes another region go on as this one would."""

    cluster: Kept
    pods_made: int
    split: tuple[int, int]
    elapsed: float


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
        retry_seconds: float = 600.0,
        like: KeptRegion | None = None,
    ) -> None:
        """With `like` it begins as that one was."""
        self.region = region
        self.spec = spec or a_fleet(region)
        self.time = time or SimulatedTime(alone=True)
        self.cluster = FakeCluster(region, namespace=NAMESPACE, time=self.time)
        if like:
            self.cluster.begin_with(like.cluster)
        simulated = isinstance(self.time, SimulatedTime)
        self.simulation = Simulation(
            self.cluster,
            start_seconds=4 if simulated else 0.2,
            reacts=simulated,
            pods_made=like.pods_made if like else 0,
        )
        self.api = Api(self.cluster)
        self.users = Users(self, per_second=users_per_second)
        self.splits: list[tuple[int, int]] = [like.split] if like else []
        """What the route gave the canary of users and of copies, change by change."""
        self.split_at: list[float] = [0.0] if like else []
        """When, in seconds of the cluster's own time."""
        self.routes = self.place(retry_seconds).routes
        self.render = render or self.plainly
        self._retry_seconds = retry_seconds
        self.fleet = self.open()
        self.cluster.on_change(self._note)

    def kept(self) -> KeptRegion:
        """As it is now, for another one to begin with."""
        return KeptRegion(self.cluster.kept(), self.simulation.pods_made, self.splits[-1], self.time.monotonic())

    def become(self, like: KeptRegion) -> None:
        """Be as that one was, at its time; in this one nothing has happened yet."""
        assert isinstance(self.time, SimulatedTime)
        self.time.elapsed = like.elapsed
        self.cluster.begin_with(like.cluster)
        self.simulation.begin(pods_made=like.pods_made)
        self.splits, self.split_at = [like.split], [like.elapsed]

    def open(
        self,
        *,
        retry_seconds: float | None = None,
        carrier: Carrier | None = DELIVERER,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> ArgoFleet:
        """Another fleet of the same region, as after a crash or on another machine, by default of the same delivery.

        `transport` is its way to `api`.
        """
        return ArgoFleet(
            self.place(self._retry_seconds if retry_seconds is None else retry_seconds),
            cluster=self.client(transport),
            render=self.render,
            clock=self.time,
            served=(lambda _: self.users.served) if self.users.per_second else None,
            carrier=carrier,
        )

    def guard(
        self,
        clock: Clock | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Guard:
        """What runs in the region's own cluster, by its own clock; `transport` is its way to `api`."""
        client = self.client(transport, retry_seconds=0)
        place, time = self.place(60.0), clock or self.time
        return Guard(place, client, time, tell)

    def place(self, retry_seconds: float) -> RegionConfig:
        place = self.spec.regions[self.region]
        return RegionConfig(
            region=self.region,
            name=NAME,
            traffic=self.spec.traffic,
            entry=place.entry,
            stable_url=place.stable_url,
            canary_url=place.canary_url,
            retry_seconds=retry_seconds,
        )

    def client(self, transport: httpx.AsyncBaseTransport | None = None, **options: float) -> KubeClient:
        return KubeClient(
            CredentialProvider(self._credential, self.time),
            namespace=NAMESPACE,
            clock=self.time,
            transport=transport or FakeTransport(self.api),
            chance=lambda: 0.5,
            **options,
        )

    def plainly(self, engine: Engine) -> tuple[Json, ...]:
        """What an engine needs there, with no analysis."""
        release = Release(
            delivery=NAME, region=self.region, version=engine.version, digest=engine.digest, image=engine.image
        )
        return render(self.spec, release, parts=(RenderPart.SERVING,))

    @property
    def rollout(self) -> Json:
        return self.cluster.get(ROLLOUTS, NAME)

    @property
    def route(self) -> Json:
        return self.cluster.get(self.routes.resource, NAME)

    async def _credential(self) -> Credential:
        """As an exec plugin gives it: whatever is valid now."""
        return Credential(ApiServer(f"https://{self.region}.example"), "Bearer token")

    def edit_rollout(self, change: Callable[[Json], object]) -> None:
        """Somebody changes the Rollout."""
        self.cluster.edit(ROLLOUTS, NAME, lambda body: change(body) and None)

    def apply_over(self, engine: Engine, *, manager: str) -> None:
        """Somebody applies that engine's Rollout over what is there, as Argo CD's self-heal does."""
        self.cluster.apply(ROLLOUTS, self.render(engine)[-1], manager=manager, force=True)

    def edit_route(self, change: Callable[[Json], object]) -> None:
        """Somebody changes the route."""
        self.cluster.edit(self.routes.resource, NAME, lambda body: change(body) and None)

    def abort(self, message: str) -> None:
        """The region's own analysis takes its trial back."""
        failed = {"name": "availability", "status": "Failed", "message": message}
        status: Json = {"abort": True, "canary": {"currentBackgroundAnalysisRunStatus": failed}}
        self.cluster.patch(ROLLOUTS, NAME, {"status": status}, subresource="status")

    def abort_by_hand(self) -> None:
        """A person, or a rollback from another machine, takes the trial away."""
        self.cluster.patch(ROLLOUTS, NAME, {"status": {"abort": True}}, subresource="status")

    def weight_of(self, route: Json) -> int:
        """Percent of users that a route gives the canary."""
        return self.routes.weight(route)

    def versions(self) -> tuple[str, str]:
        """Whom users of the stable reach, and those of the canary; empty for nobody."""
        found = self.cluster.find(ROLLOUTS, NAME)
        status = (found or {}).get("status") or {}
        return self._version(status.get("stableRS", "")), self._version(status.get("currentPodHash", ""))

    def _note(self, event: Event) -> None:
        if event.kind.plural == self.routes.resource.plural and event.name == NAME:
            # Until now they were split as before.
            self.users.pass_by(self.splits[-1] if self.splits else (0, 0))
            now = self.routes.weight(event.after), self.routes.mirror(event.after)
            if self.splits[-1:] != [now]:
                self.splits.append(now)
                self.split_at.append(self.cluster.time.monotonic())

    def _version(self, pod_hash: str) -> str:
        found = self.cluster.list(REPLICA_SETS, labels=f"{POD_TEMPLATE_HASH}={pod_hash}") if pod_hash else []
        return str(found[0]["spec"]["template"]["metadata"]["labels"].get(VERSION, "")) if found else ""


_ON_TRIAL: dict[tuple[str, str, int], KeptRegion] = {}


async def on_trial(region: ClusterRegion, *, carrier: Carrier = DELIVERER, weight: int = 0) -> ArgoFleet:
    """Version 1 serves and version 2 is on trial; the fleet of the one who brought it.

    Regions that are alike are brought there once.
    """
    key = (region.spec.model_dump_json(), carrier.model_dump_json(), weight)
    if key not in _ON_TRIAL:
        first = ClusterRegion(region.region, spec=region.spec)
        fleet = first.open(carrier=carrier)
        await fleet.deploy(an_image("1"))
        await fleet.deploy(an_image("2"))
        if weight:
            await fleet.shift(weight)
        _ON_TRIAL[key] = first.kept()
    region.become(_ON_TRIAL[key])
    fleet = region.fleet if carrier == DELIVERER else region.open(carrier=carrier)
    # Said again it moves nothing: it takes the Lease, as the one did who brought it.
    await (fleet.shift(weight) if weight else fleet.deploy(an_image("2")))
    return fleet


LABELS = {"app.kubernetes.io/managed-by": "Helm"}
RELEASE = {"meta.helm.sh/release-name": "chat"}
PODS_OF_OTHERS = 4


def a_release(name: str, namespace: str) -> tuple[Json, ...]:
    """Both Services, the route, and the Rollout, as Argo Rollouts' own examples call them."""

    def made(api_version: str, kind: str, suffix: str, spec: Json) -> Json:
        metadata = {"name": name + suffix, "namespace": namespace, "labels": LABELS, "annotations": RELEASE}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    service = {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": 8000}]}
    backends = [{"name": f"{name}-{arm}", "port": 80, "weight": weight} for arm, weight in _SPLIT]
    route = {"parentRefs": [{"name": "public"}], "hostnames": ["chat.example"], "rules": [{"backendRefs": backends}]}
    engine = {"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "ports": [{"name": "http", "containerPort": 8000}]}
    routing = {"plugins": {"argoproj-labs/gatewayAPI": {"httpRoute": name, "namespace": namespace}}}
    canary = {
        "stableService": f"{name}-stable",
        "canaryService": f"{name}-canary",
        "trafficRouting": routing,
        "steps": [{"setWeight": 10}, {"pause": {}}],
    }
    rollout = {
        "replicas": PODS_OF_OTHERS,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [engine]}},
        "strategy": {"canary": canary},
    }
    return (
        made("v1", "Service", "-stable", service),
        made("v1", "Service", "-canary", service),
        made(HTTP_ROUTES.api_version, HTTP_ROUTES.kind, "", route),
        made(ROLLOUTS.api_version, ROLLOUTS.kind, "", rollout),
    )


_SPLIT = (("stable", 100), ("canary", 0))


def moved_in(cluster: FakeCluster, name: str, namespace: str) -> None:
    """The release is installed, and serves once its pods are up."""
    for body in a_release(name, namespace):
        cluster.create(resource_of(body), body, namespace=namespace, manager="helm")


def endpoints(cluster: FakeCluster, service: Json) -> set[str]:
    """The pods that a Service sends requests to, as its EndpointSlices would have them."""
    selector = service["spec"].get("selector") or {}
    if not selector:
        return set()
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    pods = cluster.list(PODS, labels=labels, namespace=service["metadata"]["namespace"])
    return {pod["metadata"]["name"] for pod in pods if is_ready(pod)}


def user_shares(route: Json) -> dict[tuple[int, str], float]:
    """Percent of a rule's users that each Service gets, by place of the rule and name; copies are not users."""
    spec = route.get("spec") or {}
    if route["kind"] == HTTP_ROUTES.kind:
        # A weight that is missing is 1 (Gateway API, HTTPBackendRef).
        rules = [
            [(ref["name"], ref.get("weight", 1)) for ref in each.get("backendRefs") or []] for each in spec["rules"]
        ]
    else:
        # Of a destination that is alone none is needed (Istio, HTTPRouteDestination).
        rules = [
            [
                (to["destination"]["host"].partition(".")[0], to.get("weight", 100 if len(each["route"]) == 1 else 0))
                for to in each.get("route") or []
            ]
            for each in spec["http"]
        ]
    return {
        (at, service): 100 * weight / total
        for at, backends in enumerate(rules)
        if (total := sum(weight for _, weight in backends))
        for service, weight in backends
    }


class Endpoints:
    """Watches every Service and route of a cluster: no write of tidegate's takes users from pods that are ready.

    It holds at each single write of tidegate's, compared with the moment before it:

    - a Service that is changed selects no fewer ready pods than it did; one that is deleted selected none;
    - a route that is changed gives no Service that selects no ready pod (or is not there) a larger share of the users
      of a rule; one that is deleted gave no users to a Service with ready pods;
    - a ready pod that is changed stays behind the Services to which routes lead users.

    What is new took nothing from anybody, and what others write, the controller among them, is theirs.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.lost: list[str] = []
        """Services that lost ready pods."""
        self.misled: list[str] = []
        """Users who were sent where no pod is ready."""
        self.taken_over: list[str] = []
        """Objects of others that tidegate wrote to."""
        cluster.on_change(self._note)

    def of(self, name: str) -> int:
        """Ready pods behind a Service now; none when there is no such Service."""
        found = self._cluster.find(SERVICES, name)
        return len(endpoints(self._cluster, found)) if found else 0

    def _note(self, event: Event) -> None:
        if event.before is None or not (_deleted(event) or event.manager == MANAGER):
            return
        if "tidegate.dev/delivery" not in (event.before["metadata"].get("labels") or {}):
            self.taken_over.append(f"{event.kind.kind} {event.name}")
        if event.kind.plural == SERVICES.plural:
            self._note_service(event, event.before)
        elif event.kind.plural in _ROUTES:
            self._note_route(event, event.before)
        elif event.kind.plural == PODS.plural and event.change != "DELETED" and is_ready(event.before):
            self._note_pod(event, event.before)

    def _note_pod(self, event: Event, before: Json) -> None:
        shares = [user_shares(route).items() for route in self._cluster.list(HTTP_ROUTES)]
        for name in sorted({service for each in shares for (_, service), share in each if share}):
            selector = (self._cluster.find(SERVICES, name) or {"spec": {}})["spec"].get("selector") or {}
            if selects(selector, labels_of(before)) and not selects(selector, labels_of(event.after)):
                self.lost.append(f"{name}: without {event.name}")

    def _note_service(self, event: Event, before: Json) -> None:
        had = endpoints(self._cluster, before)
        has = endpoints(self._cluster, event.after) if event.change != "DELETED" else set()
        if len(has) < len(had):
            self.lost.append(f"{event.name}: {len(had)} -> {len(has)}")

    def _note_route(self, event: Event, before: Json) -> None:
        had = user_shares(before)
        if event.change == "DELETED":
            served = sorted(service for (_, service), share in had.items() if share and self.of(service))
            self.misled += [f"{event.name}: gone, and with it the way to {service}" for service in served]
            return
        for (at, service), share in user_shares(event.after).items():
            if share > had.get((at, service), 0) and not self.of(service):
                self.misled.append(f"{event.name}: {had.get((at, service), 0):g} % -> {share:g} % to {service}")


_ROUTES = (HTTP_ROUTES.plural, VIRTUAL_SERVICES.plural)


def _deleted(event: Event) -> bool:
    """Whether an object went that no controller of the simulation takes away."""
    return event.change == "DELETED" and event.kind.plural in (SERVICES.plural, ROLLOUTS.plural, *_ROUTES)
