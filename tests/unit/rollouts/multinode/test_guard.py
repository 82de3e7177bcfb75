"""The guard of engines over several nodes: what no controller in the region does, it does."""

from __future__ import annotations

import pytest
from fakes.clusters.multi_node import MultiNodeRegion, an_image_of_nodes
from fakes.clusters.region import DELIVERER, NAME, Endpoints

from rollouts.cluster.carrier import Carrier
from rollouts.cluster.guard import POLL_SECONDS, Guard, GuardAction
from rollouts.errors import FleetError, NotTheCarrier
from rollouts.kube.resources import EVENTS, PODS
from rollouts.manifests.conventions import WORKER_INDEX, stable_service
from rollouts.model import RegionPhase
from rollouts.multinode.fleet import LeaderWorkerSetFleet
from tidegate.testing import versions

pytestmark = pytest.mark.long

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


async def test_users_leave_a_canary_that_died_though_nobody_carries_it(region: MultiNodeRegion) -> None:
    await on_trial(region)
    guard = region.guard()
    await looks(guard, region, 30)
    region.simulation.crash("2", last_words="Killed")
    for pod in region.cluster.list(PODS, labels=f"tidegate.dev/version=2,{WORKER_INDEX}=0"):
        region.cluster.delete(PODS, pod["metadata"]["name"])
    await looks(guard, region, 2 * POLL_SECONDS)
    assert region.splits[-1] == (0, 0)
