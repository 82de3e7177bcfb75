"""Two backends of one HTTPRoute: who has users, what is written, and what gateways and others may do meanwhile."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from typing import Any

import pytest
from fakes.clock import SimulatedTime
from fakes.clusters.region import DELIVERER, an_image
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.refusal import Refusal
from fakes.kube.requests import Fault, Refuse
from fakes.kube.server import FakeTransport
from fakes.kube.store import Event

from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.credentials import CredentialProvider
from rollouts.cluster.guard import Guard
from rollouts.cluster.guarded import GuardedRoute
from rollouts.cluster.peers import RoutePlace
from rollouts.cluster.route import RouteFleet
from rollouts.errors import EngineDidNotStart, FleetError, NotOurs, NotPossible, NotTheCarrier, Unfit
from rollouts.kube.model import MANAGER
from rollouts.kube.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    HTTP_ROUTES,
    INFERENCE_POOLS,
    LEASES,
    PODS,
    SERVICES,
    resource_of,
)
from rollouts.manifests.conventions import ROUTE_NOTES
from rollouts.manifests.route_spec import RouteReference
from rollouts.model import RegionPhase
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY
from tidegate.testing import versions

NAME, NAMESPACE = "support-llm", "support"
ONE, TWO, THREE = an_image("1"), an_image("2"), an_image("3")
IMAGE = "/spec/template/spec/containers/0/image"


class RouteRegion:
    """Two Deployments with Services, or pools, and a gateway that splits users between them."""

    def __init__(self, *, pools: bool = False, workloads: bool = True) -> None:
        self.time = SimulatedTime(alone=True)
        self.cluster = FakeCluster("eu-west-1", namespace=NAMESPACE, time=self.time)
        self.refused, self.dying, self.pools = "", False, pools
        peers = {name: peer(name, pools=pools, workload=workloads) for name in ("blue", "green")}
        reference = RouteReference.model_validate({"route": "chat", "peers": peers})
        urls = {name: f"https://{name}.example" for name in peers}
        self.place = RoutePlace(region="eu-west-1", name=NAME, entry="https://e", reference=reference, urls=urls)
        self.written = list[str]()
        self.cluster.on_change(self._react)
        for body in (a_route(pools=pools), *self._behind("blue", 2), *self._behind("green", 0)):
            self._create(body)
        self.api = Api(self.cluster)
        self.fleet = self.open()

    def _behind(self, name: str, replicas: int) -> tuple[Json, ...]:
        labels = {"app": f"llm-{name}"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "vllm", "image": ONE.image}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        backend: Json = {"apiVersion": "v1", "kind": "Service", "spec": {"selector": labels}}
        if self.pools:
            picker = {"name": f"pick-{name}", "port": {"number": 9002}}
            backend = {
                "apiVersion": INFERENCE_POOLS.api_version,
                "kind": "InferencePool",
                "spec": {"selector": {"matchLabels": labels}, "endpointPickerRef": picker},
            }
            self._endpoints(f"pick-{name}", 1)
        metadata = {"name": f"llm-{name}", "namespace": NAMESPACE}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        return {**backend, "metadata": metadata}, deployment

    def _create(self, body: Json) -> None:
        self.cluster.create(resource_of(body), body, namespace=NAMESPACE, manager="helm")

    def _react(self, event: Event) -> None:
        """As the controllers of Deployments and of the gateway, two seconds later."""
        if event.manager.startswith(MANAGER) and event.kind.plural not in {LEASES.plural, "events"}:
            self.written.append(f"{event.kind.kind} {event.name}")
        if event.kind.plural == DEPLOYMENTS.plural and event.manager != "kube":
            self.time.call_later(2, lambda: self._scaled(event.name))
        if event.kind.plural == HTTP_ROUTES.plural and event.manager != "gateway":
            self.time.call_later(2, self._answered)

    def _scaled(self, name: str) -> None:
        found = self.cluster.get(DEPLOYMENTS, name)
        wanted = found["spec"]["replicas"]
        ready = 0 if self.dying else wanted
        status = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": ready}
        status["observedGeneration"] = found["metadata"]["generation"]
        self.cluster.update_status(DEPLOYMENTS, {**found, "status": status}, manager="kube")
        self._endpoints(name, ready)
        self._pods(name, wanted)

    def _endpoints(self, service: str, count: int) -> None:
        metadata = {"name": f"{service}-1", "labels": {"kubernetes.io/service-name": service}, "namespace": NAMESPACE}
        ends = [{"addresses": [f"10.0.0.{each}"], "conditions": {"ready": True}} for each in range(count)]
        body = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": "IPv4",
        }
        if self.cluster.find(ENDPOINT_SLICES, f"{service}-1"):
            self.cluster.delete(ENDPOINT_SLICES, f"{service}-1")
        self.cluster.create(ENDPOINT_SLICES, {**body, "endpoints": ends}, namespace=NAMESPACE)

    def _pods(self, name: str, count: int) -> None:
        for each in self.cluster.list(PODS, labels=f"app={name}"):
            self.cluster.delete(PODS, each["metadata"]["name"])
        for each in range(count):
            waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
            states = [{"name": "vllm", "state": {"waiting": waiting}}] if self.dying else []
            ready = {"type": "Ready", "status": "False" if self.dying else "True"}
            status = {"conditions": [ready], "containerStatuses": states}
            metadata = {"name": f"{name}-{each}", "labels": {"app": name}}
            spec = {"containers": [{"name": "vllm", "image": "any"}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            made = self.cluster.create(PODS, pod, namespace=NAMESPACE)
            self.cluster.update_status(PODS, {**made, "status": status})

    def _answered(self) -> None:
        route = self.cluster.get(HTTP_ROUTES, "chat")
        seen = {"observedGeneration": route["metadata"]["generation"], "reason": "Fine", "message": ""}
        refused = {"status": "False", "reason": "InvalidKind", "message": self.refused} if self.refused else {}
        conditions = [
            {"type": "Accepted", "status": "True", **seen},
            {"type": "ResolvedRefs", "status": "True", **seen, **refused},
        ]
        parent = {"parentRef": {"name": "gate"}, "controllerName": "example/gateway", "conditions": conditions}
        self.cluster.update_status(HTTP_ROUTES, {**route, "status": {"parents": [parent]}}, manager="gateway")

    def open(self, **options: Any) -> RouteFleet:
        known = {"carrier": DELIVERER, "champion": ONE} | options
        return RouteFleet(self.place, cluster=self.client(), clock=self.time, **known)

    def client(self) -> KubeClient:
        credentials = CredentialProvider.fixed("https://eu-west-1.example", token="token", clock=self.time)
        return KubeClient(
            credentials, namespace=NAMESPACE, clock=self.time, transport=FakeTransport(self.api), chance=lambda: 0.5
        )

    @property
    def route(self) -> Json:
        return self.cluster.get(HTTP_ROUTES, "chat")

    @property
    def weights(self) -> list[tuple[int, int]]:
        """Of both backends, rule by rule."""
        rules = self.route["spec"]["rules"]
        return [(one["weight"], two["weight"]) for one, two in (each["backendRefs"][:2] for each in rules[:2])]

    def weigh(self, blue: int, green: int) -> None:
        """Somebody else does."""

        def written(route: Json) -> None:
            for rule in route["spec"]["rules"][:2]:
                rule["backendRefs"][0]["weight"], rule["backendRefs"][1]["weight"] = blue, green

        self.cluster.edit(HTTP_ROUTES, "chat", written, manager="argocd")


def peer(name: str, *, pools: bool, workload: bool) -> Json:
    started = {"name": f"llm-{name}", "set": {IMAGE: "{image}"}}
    kind = {"kind": "InferencePool"} if pools else {}
    return {"backend": f"llm-{name}", "series": f"llm-{name}", **kind, **({"workload": started} if workload else {})}


def a_route(*, pools: bool = False) -> Json:
    kind = {"group": INFERENCE_POOLS.group, "kind": "InferencePool"} if pools else {"port": 8000}
    refs = [{"name": f"llm-{name}", **kind, "weight": weight} for name, weight in (("blue", 100), ("green", 0))]
    rules = [{"backendRefs": deepcopy(refs)}, {"backendRefs": deepcopy(refs)}]
    other = {"backendRefs": [{"name": "docs", "port": 80, "weight": 1}]}
    metadata = {"name": "chat", "namespace": NAMESPACE}
    spec = {"parentRefs": [{"name": "gate"}], "rules": [*rules, other]}
    return {"apiVersion": HTTP_ROUTES.api_version, "kind": "HTTPRoute", "metadata": metadata, "spec": spec}


@pytest.fixture(params=[False, True], ids=["services", "pools"])
async def region(request: pytest.FixtureRequest) -> RouteRegion:
    return await up(pools=request.param)


async def up(**options: Any) -> RouteRegion:
    region = RouteRegion(**options)
    await region.time.sleep(10)
    return region


async def test_a_version_goes_to_the_other_backend_and_the_two_swap(region: RouteRegion) -> None:
    before = region.route["spec"]["rules"][2]
    state = await region.fleet.deploy(TWO)
    assert (versions(state), state.weight, state.phase) == (("1", "2", None), 0, RegionPhase.TRIAL)
    assert state.canary is not None
    assert state.canary.url == "https://green.example"
    deployment = region.cluster.get(DEPLOYMENTS, "llm-green")
    assert deployment["spec"]["replicas"] == 2, "as many as serve"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == TWO.image
    assert region.fleet.series_of("2") == "llm-green"
    assert (await region.fleet.shift(25)).weight == 25
    assert region.weights == [(75, 25), (75, 25)]
    state = await region.fleet.promote()
    assert (versions(state), region.weights) == (("2", None, "1"), [(0, 100), (0, 100)])
    await region.fleet.settle()
    assert versions(await region.fleet.deploy(THREE)) == ("2", "3", None)
    assert (await region.fleet.shift(10)).weight == 10
    assert region.weights == [(10, 90), (10, 90)]
    assert region.route["spec"]["rules"][2] == before
    assert set(region.written) == {"HTTPRoute chat", "Deployment llm-blue", "Deployment llm-green"}


async def test_what_is_taken_back_and_what_was_promoted_goes_back(region: RouteRegion) -> None:
    await region.fleet.deploy(TWO)
    await region.fleet.shift(50)
    state = await region.fleet.rollback(None)
    assert (versions(state), state.weight, region.weights) == (("1", None, None), 0, [(100, 0), (100, 0)])
    await region.fleet.deploy(TWO)
    await region.fleet.promote()
    assert await region.fleet.way_back() == "1"
    other = region.open(champion=None, carrier=DELIVERER.model_copy(update={"token": "back", "insists": True}))
    state = await other.rollback("1")
    assert (versions(state), region.weights) == (("1", None, None), [(100, 0), (100, 0)])
    with pytest.raises(NotPossible, match="version 2 is not warm here"):
        await other.rollback("2")
    with pytest.raises(NotTheCarrier):
        await region.fleet.shift(10)


async def test_who_insists_on_going_back_waits_for_no_lease() -> None:
    region = await up()
    await region.fleet.deploy(TWO)
    await region.fleet.shift(50)
    refused = Refusal(403, "Forbidden", "leases are not yours")
    region.api.faults.add(Fault(Refuse(refused), verbs=("update",), plural="leases", times=None))
    other = region.open(carrier=DELIVERER.model_copy(update={"token": "back", "insists": True}))
    with pytest.raises(FleetError, match="leases are not yours"):
        await other.rollback(None)
    assert region.weights == [(100, 0), (100, 0)]


async def test_going_back_waits_for_no_gateway() -> None:
    region = await up()
    await region.fleet.deploy(TWO)
    await region.fleet.shift(50)
    region.refused, began = "none of these", region.time.monotonic()
    await region.fleet.rollback(None)
    assert (region.weights, region.time.monotonic()) == ([(100, 0), (100, 0)], began)


async def test_no_way_back_to_a_backend_without_engines() -> None:
    region = await up()
    await region.fleet.deploy(TWO)
    await region.fleet.shift(50)
    region._endpoints("llm-blue", 0)
    with pytest.raises(FleetError, match="users stay on green: Service llm-blue has no ready endpoint"):
        await region.fleet.rollback(None)
    assert region.weights == [(50, 50), (50, 50)]


async def test_what_a_gateway_refuses_is_taken_back_and_refused_before_the_first_write(region: RouteRegion) -> None:
    await region.fleet.deploy(TWO)
    region.refused = "kind InferencePool is not supported"
    with pytest.raises(FleetError, match=r"gateway gate \(example/gateway\) says ResolvedRefs is false, InvalidKind"):
        await region.fleet.shift(25)
    assert region.weights == [(100, 0), (100, 0)]
    await region.time.sleep(10)
    with pytest.raises(Unfit, match="is not supported"):
        await region.open().foreign_objects()
    with pytest.raises(Unfit, match="is not supported"):
        await region.open().deploy(TWO)


async def test_what_does_not_start_is_put_back_and_no_user_met_it() -> None:
    region = await up()
    before = region.cluster.get(DEPLOYMENTS, "llm-green")["spec"]
    region.dying = True
    with pytest.raises(EngineDidNotStart, match="did not start on green: llm-green-0: ImagePullBackOff"):
        await region.fleet.deploy(TWO)
    assert region.cluster.get(DEPLOYMENTS, "llm-green")["spec"] == before
    assert region.weights == [(100, 0), (100, 0)]


async def test_engines_that_others_start_are_waited_for() -> None:
    region = await up(workloads=False)
    region.time.call_later(60, lambda: region._endpoints("llm-green", 1))
    assert versions(await region.fleet.deploy(TWO)) == ("1", "2", None)
    assert set(region.written) == {"HTTPRoute chat"}
    known = await region.fleet.engine_of("2")
    assert known is not None
    assert known.digest == TWO.digest
    region.time.call_later(1, lambda: region._endpoints("llm-green", 0))
    await region.time.sleep(5)
    state = await region.fleet.observe()
    assert state.canary is not None
    assert state.canary.problem == "Service llm-green has no ready endpoint"


async def test_a_picker_without_an_endpoint_is_a_pool_without_one() -> None:
    region = await up(pools=True)
    await region.fleet.deploy(TWO)
    region._endpoints("pick-green", 0)
    state = await region.fleet.observe()
    assert state.canary is not None
    assert state.canary.problem == "the endpoint picker pick-green of InferencePool llm-green has no ready endpoint"


async def test_who_moves_the_weights_meanwhile_is_named_and_users_go_back(region: RouteRegion) -> None:
    await region.fleet.deploy(TWO)
    await region.fleet.shift(50)
    region.weigh(100, 0)
    state = await region.fleet.observe()
    assert state.foreign_change is not None
    assert state.foreign_change.reason == "argocd wrote the backends of HTTPRoute chat"
    region.weigh(0, 100)
    state = await region.fleet.rollback(None)
    assert (region.weights, state.canary, state.foreign_change) == ([(100, 0), (100, 0)], None, None)


async def test_the_guard_takes_back_what_nobody_carries(region: RouteRegion) -> None:
    await region.fleet.deploy(TWO)
    await region.fleet.shift(50)
    client = region.client()
    guard = Guard(region.place, GuardedRoute(region.place, client, region.time), client, region.time)
    for _ in range(200):
        if taken := await guard.check():
            break
        await region.time.sleep(10)
    assert taken is not None
    assert (taken.taken.version, taken.state.problem, region.weights) == ("2", None, [(100, 0), (100, 0)])
    state = await region.open().observe()
    assert "taken back by the region's guard" in state.taken_away
    with pytest.raises(NotTheCarrier, match="taken back by the region's guard"):
        await region.fleet.shift(50)
    assert (await region.open().deploy(TWO)).taken_away == ""


async def test_a_process_that_died_is_succeeded_where_it_was(region: RouteRegion) -> None:
    """Killed while the engine came up: another one goes on, and asks for nothing twice."""
    begun = asyncio.create_task(region.fleet.deploy(TWO))
    await region.time.sleep(1)
    begun.cancel()
    await asyncio.wait([begun])
    next_one = region.open(carrier=DELIVERER.model_copy(update={"token": "two", "over": frozenset({"delivery-1"})}))
    assert versions(await next_one.deploy(TWO)) == ("1", "2", None)
    assert region.written.count("Deployment llm-green") == 3, "two marks of a carrier, and one version"
    with pytest.raises(NotTheCarrier):
        await region.fleet.shift(10)


def without_second(route: Json) -> None:
    for rule in route["spec"]["rules"][:2]:
        del rule["backendRefs"][1]


def without_parents(route: Json) -> None:
    route["status"] = {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without_second, "HTTPRoute chat has no backend llm-green"),
        (without_parents, "its status names no parent"),
        (
            lambda route: route["spec"]["rules"][0]["backendRefs"][1].update(
                kind="InferencePool", group=INFERENCE_POOLS.group
            ),
            "backend llm-green of HTTPRoute chat is inference.networking.k8s.io/InferencePool, not Service",
        ),
    ],
)
async def test_a_route_that_is_not_as_the_spec_says_is_told_before_anything_is_written(change: Any, told: str) -> None:
    region = await up()
    subresource = "status" if change is without_parents else ""
    manager = "gateway" if subresource else "kubectl"
    region.cluster.edit(HTTP_ROUTES, "chat", change, subresource=subresource, manager=manager)
    with pytest.raises(Unfit, match=told):
        await region.fleet.foreign_objects()
    assert region.written == []


async def test_weights_that_are_neither_all_nor_nothing_are_told() -> None:
    region = await up()
    region.weigh(80, 20)
    with pytest.raises(Unfit, match="80 % of users are on blue and 20 % on green"):
        await region.fleet.foreign_objects()


async def test_the_route_of_another_delivery_is_not_written() -> None:
    region = await up()
    region.cluster.edit(HTTP_ROUTES, "chat", lambda route: route["metadata"].update(labels={DELIVERY: "another"}))
    await region.time.sleep(5)
    with pytest.raises(NotOurs):
        await region.fleet.deploy(TWO)
    assert region.written == []


async def test_notes_that_cannot_be_read_are_none() -> None:
    region = await up()
    region.cluster.edit(
        HTTP_ROUTES, "chat", lambda route: route["metadata"].update(annotations={ROUTE_NOTES: '{"versions": 7}'})
    )
    state = await region.open(champion=None).observe()
    assert versions(state) == ("unknown", None, None)
    assert json.loads(region.route["metadata"]["annotations"][ROUTE_NOTES]) == {"versions": 7}
    assert region.cluster.find(SERVICES, "llm-blue") is not None
