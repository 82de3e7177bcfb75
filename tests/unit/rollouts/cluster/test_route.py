"""Two backends of one HTTPRoute: who has users, what is written, and what gateways and others may do meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fakes.clock import SimulatedTime
from fakes.clusters.region import DELIVERER, an_image
from fakes.clusters.two_backends import TwoBackends, peer
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.refusal import Refusal
from fakes.kube.requests import Fault, Refuse
from fakes.kube.server import client_of

from rollouts.cluster.guard import Guard
from rollouts.cluster.peers import RoutePlace
from rollouts.cluster.route import RouteFleet
from rollouts.errors import EngineDidNotStart, FleetError, NotOurs, NotPossible, NotTheCarrier, Overruled, Unfit
from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, INFERENCE_POOLS, PODS, SERVICES
from rollouts.manifests.conventions import ROUTE_NOTES
from rollouts.manifests.theirs_spec import RouteReference
from rollouts.model import RegionPhase
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY
from tidegate.core.process import notes_to
from tidegate.testing import versions

NAME, NAMESPACE = "support-llm", "support"
ONE, TWO, THREE = an_image("1"), an_image("2"), an_image("3")


class RouteRegion(TwoBackends):
    """A region of such backends, and the fleet that the spec names them by."""

    def __init__(self, *, pools: bool = False, workloads: bool = True) -> None:
        self.time = SimulatedTime(alone=True)
        super().__init__(FakeCluster("eu-west-1", namespace=NAMESPACE, time=self.time), pools=pools)
        peers = {name: peer(name, pools=pools, workload=workloads) for name in ("blue", "green")}
        reference = RouteReference.model_validate({"route": "chat", "peers": peers})
        urls = {name: f"https://{name}.example" for name in peers}
        self.place = RoutePlace(region="eu-west-1", name=NAME, entry="https://e", reference=reference, urls=urls)
        self.api = Api(self.cluster)
        self.fleet = self.open()

    def open(self, **options: Any) -> RouteFleet:
        known = {"carrier": DELIVERER, "champion": ONE} | options
        return RouteFleet(self.place, cluster=client_of(self.api), clock=self.time, **known)


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
    state = await other.rollback(None)
    assert (region.weights, state.canary) == ([(100, 0), (100, 0)], None)


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
    region.endpoints("llm-blue", 0)
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


@pytest.mark.parametrize(
    ("pools", "controller", "told"),
    [
        (True, "volcano.sh/kthena-router", "gateway gate (volcano.sh/kthena-router): before kthena#1471"),
        (False, "volcano.sh/kthena-router", ""),
        (True, "istio.io/gateway-controller", ""),
    ],
)
async def test_a_gateway_that_takes_pools_and_is_known_not_to_heed_weights_is_told(
    pools: bool, controller: str, told: str
) -> None:
    region, lines = RouteRegion(pools=pools), list[str]()
    region.controller = controller
    await region.time.sleep(10)
    with notes_to(lines.append):
        assert await region.fleet.foreign_objects() == ()
    assert bool(told) == bool(lines) and all(told in line for line in lines)


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
    region.time.call_later(60, lambda: region.endpoints("llm-green", 1))
    assert versions(await region.fleet.deploy(TWO)) == ("1", "2", None)
    assert set(region.written) == {"HTTPRoute chat"}
    known = await region.fleet.engine_of("2")
    assert known is not None
    assert known.digest == TWO.digest
    region.time.call_later(1, lambda: region.endpoints("llm-green", 0))
    await region.time.sleep(5)
    state = await region.fleet.observe()
    assert state.canary is not None
    assert state.canary.problem == "Service llm-green has no ready endpoint"


async def test_a_picker_without_an_endpoint_is_a_pool_without_one() -> None:
    region = await up(pools=True)
    await region.fleet.deploy(TWO)
    region.endpoints("pick-green", 0)
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
    for move in (region.fleet.shift(75), region.fleet.promote()):
        with pytest.raises(Overruled, match="argocd wrote the backends"):
            await move
    assert region.weights == [(0, 100), (0, 100)]
    state = await region.fleet.rollback(None)
    assert (region.weights, state.canary, state.foreign_change) == ([(100, 0), (100, 0)], None, None)


async def test_the_guard_takes_back_what_nobody_carries(region: RouteRegion) -> None:
    await region.fleet.deploy(TWO)
    await region.fleet.shift(50)
    client = client_of(region.api)
    guard = Guard(region.place, client, region.time)
    for _ in range(200):
        if taken := await guard.check():
            break
        await region.time.sleep(10)
    assert taken is not None
    assert (taken.taken.version, taken.state.problem, region.weights) == ("2", None, [(100, 0), (100, 0)])
    state = await region.open().observe()
    assert "rolled back by the region's guard" in state.taken_away
    with pytest.raises(NotTheCarrier, match="rolled back by the region's guard"):
        await region.fleet.shift(50)
    assert (await region.open().deploy(TWO)).taken_away == ""


async def test_the_guard_scales_down_what_has_had_no_users_for_as_long_as_the_spec_keeps_it(
    region: RouteRegion,
) -> None:
    region.place = region.place.model_copy(update={"keep_seconds": 3600.0})
    fleet, told = region.open(), list[str]()
    guard = Guard(region.place, client_of(region.api), region.time, told.append)

    async def looks(minutes: int) -> int:
        for _ in range(minutes):
            await guard.once()
            await region.time.sleep(60)
        return int(region.cluster.get(DEPLOYMENTS, "llm-blue")["spec"]["replicas"])

    await fleet.deploy(TWO)
    await fleet.promote()
    assert await looks(90) == 2, "somebody carries the delivery still"
    await fleet.leave()
    region.endpoints("llm-green", 0)
    for pod in region.cluster.list(PODS, labels="app=llm-green"):
        region.cluster.delete(PODS, pod["metadata"]["name"])
    assert await looks(2) == 2, "nothing else serves"
    assert (await fleet.rollback("1")).stable == (await region.open().observe()).stable
    await fleet.leave()
    assert (await looks(50), told) == (2, ["guarded"])
    region.cluster.edit(DEPLOYMENTS, "llm-green", lambda found: found["spec"].update(replicas=3))
    assert await looks(20) == 2
    assert told[1:] == ["eu-west-1: green, which has no users, was scaled down"]
    assert region.cluster.get(DEPLOYMENTS, "llm-green")["spec"]["replicas"] == 0
    state = await region.open().observe()
    assert (state.phase, versions(state)) == (RegionPhase.STEADY, ("1", None, None))
    with pytest.raises(NotPossible, match="version 2 is not warm here"):
        await region.open().rollback("2")
    assert versions(await region.open().deploy(THREE)) == ("1", "3", None)
    assert region.cluster.get(DEPLOYMENTS, "llm-green")["spec"]["replicas"] == 2, "as many as serve"


async def test_engines_that_others_start_are_left_as_they_are() -> None:
    region = await up(workloads=False)
    region.place = region.place.model_copy(update={"keep_seconds": 60.0})
    region.endpoints("llm-green", 1)
    fleet = region.open()
    await fleet.deploy(TWO)
    await fleet.promote()
    await fleet.leave()
    await region.time.sleep(600)
    written = len(region.written)
    await Guard(region.place, client_of(region.api), region.time).check()
    assert (len(region.written), (await region.open().observe()).warm) == (written, ("1",))
    region.endpoints("llm-blue", 0)
    with pytest.raises(NotPossible, match="version 1 is down"):
        await region.open().rollback("1")
    with pytest.raises(NotPossible, match="no backend serves version 1"):
        await region.open().restart("1")


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


def with_shares(route: Json) -> None:
    route["spec"]["rules"][0]["backendRefs"][1]["weight"] = 25


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (with_shares, "80 % of users are on blue and 20 % on green"),
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
