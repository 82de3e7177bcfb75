"""The guard of engines over several nodes: what no controller in the region does, it does."""

from __future__ import annotations

import asyncio

import pytest
from fakes.clusters.multi_node import MultiNodeRegion, an_image_of_nodes
from fakes.clusters.region import DELIVERER, NAME, Endpoints
from fakes.kube.refusal import Refusal
from fakes.kube.requests import Fault, Refuse

from rollouts.cluster.carrier import Carrier
from rollouts.cluster.guard import POLL_SECONDS, Guard, GuardAction
from rollouts.errors import FleetError, NotTheCarrier
from rollouts.kube.resources import EVENTS, PODS, SERVICES
from rollouts.manifests.conventions import WORKER_INDEX, stable_service
from rollouts.manifests.objects.access import guard_rights
from rollouts.model import RegionPhase
from rollouts.multinode.fleet import LeaderWorkerSetFleet
from tidegate.testing import versions

UNATTENDED_SECONDS = 300.0
CARRIER = DELIVERER.model_copy(update={"unattended_seconds": UNATTENDED_SECONDS})


@pytest.fixture
def region() -> MultiNodeRegion:
    return MultiNodeRegion()


async def on_trial(region: MultiNodeRegion) -> LeaderWorkerSetFleet:
    """Half of the users on version 2; the one who brought it dies at once."""
    fleet = region.open(carrier=CARRIER)
    await fleet.deploy(an_image_of_nodes("1"))
    await fleet.deploy(an_image_of_nodes("2"))
    await fleet.shift(50)
    return fleet


async def looks(guard: Guard, region: MultiNodeRegion, seconds: float) -> list[GuardAction]:
    """What it did in so many seconds; an API server that does not answer is asked again."""
    found, end = [], region.time.monotonic() + seconds
    while region.time.monotonic() < end:
        try:
            found.append(await guard.check())
        except FleetError:
            found.append(None)
        await region.time.sleep(POLL_SECONDS)
    return [each for each in found if each]


async def test_a_trial_that_nobody_carries_goes_back(region: MultiNodeRegion) -> None:
    fleet = await on_trial(region)
    watched, guard = Endpoints(region.cluster), region.guard()
    assert await looks(guard, region, UNATTENDED_SECONDS - POLL_SECONDS) == []
    assert region.splits[-1] == (50, 0)
    (back,) = await looks(guard, region, 60)
    assert (back.state.phase, versions(back.state), back.state.weight) == (RegionPhase.STEADY, ("1", None, None), 0)
    assert (back.taken.version, back.taken.who) == ("2", CARRIER.who)
    assert region.sets_of("2") == []
    (event,) = (each for each in region.cluster.list(EVENTS) if each["reason"] == "Unattended")
    assert (event["message"], event["involvedObject"]["name"]) == (str(back.taken), stable_service(NAME))
    with pytest.raises(NotTheCarrier, match="version 2 was taken back by the region's guard"):
        await fleet.observe()
    assert (watched.lost, watched.misled) == ([], [])
    state = await region.open(carrier=Carrier(token="delivery-2", who="ci-8")).deploy(an_image_of_nodes("3"))
    assert (state.unattended, versions(state)) == (None, ("1", "3", None))


async def test_a_version_that_comes_up_without_a_carrier_goes_too(region: MultiNodeRegion) -> None:
    fleet = region.open(carrier=CARRIER)
    await fleet.deploy(an_image_of_nodes("1"))
    region.simulation.slow("2", 7200)
    coming = asyncio.ensure_future(fleet.deploy(an_image_of_nodes("2")))
    await region.time.sleep(20)
    coming.cancel()
    (back,) = await looks(region.guard(), region, UNATTENDED_SECONDS + 60)
    assert (back.taken.version, versions(back.state), region.sets_of("2")) == ("2", ("1", None, None), [])


async def test_what_it_could_not_finish_it_finishes_with_the_next_look(region: MultiNodeRegion) -> None:
    await on_trial(region)
    fails = Refuse(Refusal(403, "Forbidden", "not now"))
    region.api.faults.add(Fault(fails, plural="leaderworkersets", verbs=("delete",), times=1))
    (back,) = await looks(region.guard(), region, UNATTENDED_SECONDS + 90)
    assert (versions(back.state), region.sets_of("2"), region.splits[-1]) == (("1", None, None), [], (0, 0))


async def test_users_leave_a_canary_that_died_though_nobody_carries_it(region: MultiNodeRegion) -> None:
    await on_trial(region)
    guard = region.guard()
    await looks(guard, region, 30)
    region.simulation.crash("2", last_words="Killed")
    for pod in region.cluster.list(PODS, labels=f"tidegate.dev/version=2,{WORKER_INDEX}=0"):
        region.cluster.delete(PODS, pod["metadata"]["name"])
    await looks(guard, region, 2 * POLL_SECONDS)
    assert region.splits[-1] == (0, 0)


@pytest.mark.long
async def test_the_version_before_goes_when_it_was_kept_warm_for_long_enough(region: MultiNodeRegion) -> None:
    fleet = await on_trial(region)
    await fleet.promote()
    await fleet.leave()
    guard = region.guard()
    keep = region.place(60.0).keep_seconds
    await looks(guard, region, keep - 60)
    assert len(region.sets_of("1")) == 1
    await looks(guard, region, 120)
    assert region.sets_of("1") == []
    state = await region.open(carrier=None).observe()
    assert (versions(state), state.problem) == (("2", None, None), None)


async def test_its_rights_are_enough_for_all_of_that(region: MultiNodeRegion) -> None:
    await on_trial(region)
    rules = [each.rule for each in guard_rights(NAME, region.routes.resource, multi_node=True)]
    region.api.access.allow_only(*rules)
    (back,) = await looks(region.guard(), region, UNATTENDED_SECONDS + 60)
    assert versions(back.state) == ("1", None, None)
    assert "tidegate.dev/unattended" in region.cluster.get(SERVICES, stable_service(NAME))["metadata"]["annotations"]
