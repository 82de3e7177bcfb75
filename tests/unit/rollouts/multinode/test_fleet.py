"""Engines over several nodes: users are never without one, the one who dies, and no set is forgotten or changed."""

from __future__ import annotations

import asyncio

import pytest
from fakes.clusters.multi_node import NODES, MultiNodeRegion, an_image_of_nodes
from fakes.clusters.region import DELIVERER, NAME, NAMESPACE, Endpoints, a_fleet, moved_in
from fakes.kube.refusal import Refusal
from fakes.kube.requests import Fault, Refuse

from rollouts.cluster.carrier import Carrier
from rollouts.errors import CapacityError, EngineDidNotStart, FleetError, NotOurs, NotPossible, NotTheCarrier
from rollouts.kube.resources import HTTP_ROUTES, LEADER_WORKER_SETS, PODS, SERVICES
from rollouts.kube.resources import NODES as NODE_KIND
from rollouts.manifests.conventions import CARRIER, SET_NAME, WORKER_INDEX, canary_service, stable_service
from rollouts.model import RegionPhase
from rollouts.multinode.fleet import LeaderWorkerSetFleet
from tidegate.core.model import Json
from tidegate.core.names import ROLE
from tidegate.testing import versions

pytestmark = pytest.mark.long

RESUMED = Carrier(token="delivery-1-resumed", who="laptop (process 9)", over=frozenset({DELIVERER.token}))
PERSON = Carrier(token="a-rollback", who="laptop (process 5)", insists=True)


@pytest.fixture
def region() -> MultiNodeRegion:
    return MultiNodeRegion()


async def on_trial(region: MultiNodeRegion, *, weight: int = 50) -> LeaderWorkerSetFleet:
    fleet = region.open()
    await fleet.deploy(an_image_of_nodes("1"))
    await fleet.deploy(an_image_of_nodes("2"))
    if weight:
        await fleet.shift(weight)
    return fleet


def service(region: MultiNodeRegion, name: str) -> Json:
    return region.cluster.get(SERVICES, name)


def marks_of(region: MultiNodeRegion) -> set[str]:
    found = (service(region, stable_service(NAME)), service(region, canary_service(NAME)), region.route)
    return {each["metadata"]["annotations"].get(CARRIER, "") for each in found}


async def test_an_engine_is_a_group_and_its_leader_alone_answers(region: MultiNodeRegion) -> None:
    await on_trial(region)
    for name, version in ((stable_service(NAME), "1"), (canary_service(NAME), "2")):
        (the_set,) = region.sets_of(version)
        selector = service(region, name)["spec"]["selector"]
        assert (selector[SET_NAME], selector[WORKER_INDEX]) == (the_set["metadata"]["name"], "0")
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        assert len(region.cluster.list(PODS, labels=labels)) == the_set["spec"]["replicas"]
        of_set = f"{SET_NAME}={the_set['metadata']['name']}"
        assert len(region.cluster.list(PODS, labels=of_set)) == NODES * the_set["spec"]["replicas"]


async def test_the_role_of_a_service_is_the_one_that_prometheus_gives_its_pods(region: MultiNodeRegion) -> None:
    def roles() -> tuple[str | None, str | None]:
        labels = (service(region, each)["metadata"]["labels"] for each in (stable_service(NAME), canary_service(NAME)))
        stable, canary = (each.get(ROLE) for each in labels)
        return stable, canary

    fleet = await on_trial(region)
    assert roles() == ("stable", "canary")
    await fleet.promote()
    assert roles() == ("stable", None)


async def test_no_write_takes_users_from_engines_that_are_ready(region: MultiNodeRegion) -> None:
    watched = Endpoints(region.cluster)
    fleet = await on_trial(region)
    await fleet.mirror(100)
    await fleet.promote()
    await fleet.deploy(an_image_of_nodes("3"))
    await fleet.shift(25)
    await fleet.rollback(None)
    await fleet.deploy(an_image_of_nodes("4"))
    await fleet.promote()
    await fleet.rollback("2")
    assert versions(await fleet.observe()) == ("2", None, None)
    assert (watched.lost, watched.misled, watched.taken_over) == ([], [], [])


async def test_the_one_who_dies_in_a_promotion_is_followed_by_one_who_finishes(region: MultiNodeRegion) -> None:
    fleet = await on_trial(region)
    watched = Endpoints(region.cluster)
    dies = Refuse(Refusal(403, "Forbidden", "the process died"))
    region.api.faults.add(Fault(dies, verbs=("patch", "update"), after=1, times=1))
    with pytest.raises(FleetError, match="the process died"):
        await fleet.promote()
    between = await region.open().observe()
    assert (versions(between), between.weight) == (("2", None, "1"), 0)
    state = await region.open().promote()
    assert (versions(state), state.weight, state.problem) == (("2", None, "1"), 0, None)
    assert region.splits[-1] == (0, 0)
    assert ROLE not in service(region, canary_service(NAME))["metadata"]["labels"]
    assert (watched.lost, watched.misled) == ([], [])


async def test_a_version_that_comes_up_is_given_up_by_a_rollback(region: MultiNodeRegion) -> None:
    fleet = region.open()
    await fleet.deploy(an_image_of_nodes("1"))
    region.simulation.slow("2", 600)
    coming = asyncio.ensure_future(fleet.deploy(an_image_of_nodes("2")))
    await region.time.sleep(20)
    state = await fleet.rollback(None)
    with pytest.raises(NotPossible, match="version 2 was rolled back while it started"):
        await coming
    assert (versions(state), region.sets_of("2")) == (("1", None, None), [])


async def test_an_engine_whose_worker_ends_again_and_again_does_not_start(region: MultiNodeRegion) -> None:
    fleet = region.open()
    await fleet.deploy(an_image_of_nodes("1"))
    region.simulation.crash("2", last_words="RuntimeError: NCCL error: unhandled system error")
    with pytest.raises(EngineDidNotStart, match="NCCL error"):
        await fleet.deploy(an_image_of_nodes("2"))
    assert region.sets_of("2") == []


async def test_a_canary_without_engines_loses_its_users_and_the_delivery_learns_it(region: MultiNodeRegion) -> None:
    fleet = await on_trial(region)
    region.simulation.crash("2", last_words="Killed")
    for pod in region.cluster.list(PODS, labels=f"tidegate.dev/version=2,{WORKER_INDEX}=0"):
        region.cluster.delete(PODS, pod["metadata"]["name"])
    await region.time.sleep(5)
    await fleet.renew()
    assert region.splits[-1] == (0, 0)
    region.simulation.crash("2", on=False)
    await region.time.sleep(30)
    state = await fleet.observe()
    assert state.canary
    assert (state.weight, state.canary.ready) == (0, False)
    assert "its users (50 %) were sent to the stable" in (state.canary.problem or "")
    with pytest.raises(NotPossible):
        await fleet.shift(50)
    assert versions(await fleet.rollback(None)) == ("1", None, None)


async def test_without_a_previous_the_old_engines_go_with_the_promotion() -> None:
    region = MultiNodeRegion(spec=a_fleet("eu-west-1", multi_node={"size": NODES}, previous=None))
    fleet = await on_trial(region)
    assert versions(await fleet.promote()) == ("2", None, None)
    assert region.sets_of("1") == []


def add_node(region: MultiNodeRegion, name: str) -> None:
    """With room for one pod."""
    allocatable = {"cpu": "8", "memory": "256Gi", "pods": "110"}
    node = region.cluster.create(NODE_KIND, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    region.cluster.update_status(NODE_KIND, {**node, "status": {"allocatable": allocatable}})


async def test_a_group_fits_as_a_whole_or_not_at_all() -> None:
    region = MultiNodeRegion(
        spec=a_fleet("eu-west-1", multi_node={"size": NODES}, replicas=1, pod={"cpu": "8", "memory": "64Gi"})
    )
    for name in ("a", "b", "c"):
        add_node(region, name)
    fleet = region.open()
    await fleet.deploy(an_image_of_nodes("1"))
    with pytest.raises(CapacityError, match=r"needs 1 engines of 2 pods each besides .* room for 0"):
        await fleet.deploy(an_image_of_nodes("2"))
    assert region.sets_of("2") == []


async def test_the_same_version_started_otherwise_is_refused(region: MultiNodeRegion) -> None:
    fleet = await on_trial(region)
    engine = an_image_of_nodes("2")
    assert engine.launch
    other = engine.model_copy(update={"launch": engine.launch.model_copy(update={"arguments": ("--model", "other")})})
    with pytest.raises(NotPossible, match="version 2 is here already, started with other arguments"):
        await fleet.deploy(other)


async def test_services_that_a_rollout_moves_are_left_alone(region: MultiNodeRegion) -> None:
    await region.open().deploy(an_image_of_nodes("1"))
    narrowed = {"spec": {"selector": {"rollouts-pod-template-hash": "abc"}}}
    region.cluster.patch(SERVICES, stable_service(NAME), narrowed)
    with pytest.raises(NotPossible, match="a Rollout moves the Services"):
        await region.open().deploy(an_image_of_nodes("2"))
    assert region.sets_of("2") == []


async def test_objects_of_others_are_left_alone(region: MultiNodeRegion) -> None:
    moved_in(region.cluster, NAME, NAMESPACE)
    fleet = region.open()
    assert (await fleet.observe()).phase is RegionPhase.UNKNOWN
    with pytest.raises(NotOurs):
        await fleet.deploy(an_image_of_nodes("1"))
    assert region.cluster.list(LEADER_WORKER_SETS) == []


async def test_a_process_that_was_replaced_writes_nothing_any_more(region: MultiNodeRegion) -> None:
    fleet = await on_trial(region)
    await region.open(carrier=RESUMED).shift(50)
    assert marks_of(region) == {"2"}
    before = len(region.splits)
    for operation in (fleet.shift(25), fleet.promote(), fleet.rollback("1"), fleet.deploy(an_image_of_nodes("3"))):
        with pytest.raises(NotTheCarrier, match="support-llm in eu-west-1 is carried by"):
            await operation
    assert (len(region.splits), region.sets_of("3"), len(region.sets_of("2"))) == (before, [], 1)


async def test_nobody_needs_a_lease_to_go_back(region: MultiNodeRegion) -> None:
    await on_trial(region)
    forbidden = Refuse(Refusal(403, "Forbidden", "leases is forbidden"))
    region.api.faults.add(Fault(forbidden, plural="leases", times=1000))
    state = await region.open(carrier=PERSON).rollback("1")
    assert (state.canary, state.weight, region.sets_of("2")) == (None, 0, [])


async def test_a_route_that_is_gone_is_told(region: MultiNodeRegion) -> None:
    fleet = await on_trial(region, weight=0)
    region.cluster.delete(HTTP_ROUTES, NAME)
    state = await fleet.observe()
    assert (state.phase, state.problem) == (
        RegionPhase.DEGRADED,
        f"HTTPRoute {NAME} is gone: nobody can be sent to a canary",
    )
    with pytest.raises(NotPossible, match="is gone: users cannot be moved"):
        await fleet.shift(50)


async def test_users_are_seen_to_arrive() -> None:
    region = MultiNodeRegion(users_per_second=20.0)
    fleet = await on_trial(region)
    assert (await fleet.mirror(100)).mirror == 100
    region.users.obeys_weights = False
    with pytest.raises(FleetError, match="the route gives the canary 5 % of users"):
        await fleet.shift(5)
