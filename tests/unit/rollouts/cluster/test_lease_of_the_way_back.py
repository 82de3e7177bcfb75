"""A region's Lease names what served before the delivery that is open there, and nobody need be asked besides."""

from __future__ import annotations

import pytest
from fakes.clusters.region import DELIVERER, NAME, ClusterRegion, an_image

from rollouts.cluster.carrier import Carrier
from rollouts.errors import NotPossible, NotTheCarrier
from rollouts.kube.resources import LEASES
from rollouts.manifests.conventions import lease

PERSON = Carrier(token="a-rollback", who="laptop (process 5)", insists=True)
NEXT = Carrier(token="delivery-2", who="ci-8 (process 8)", over=frozenset({DELIVERER.token}))


@pytest.fixture
async def region() -> ClusterRegion:
    """It serves version 1, delivered to the end."""
    made = ClusterRegion()
    await made.fleet.deploy(an_image("1"))
    await made.fleet.settle()
    return made


async def test_it_stands_from_the_first_write_until_the_delivery_is_over(region: ClusterRegion) -> None:
    assert await region.fleet.way_back() == ""
    await region.fleet.deploy(an_image("2"))
    assert await region.fleet.way_back() == "1"
    await region.fleet.promote()
    await region.fleet.leave()
    assert await region.open(carrier=None).way_back() == "1"
    await region.open().settle()
    assert await region.fleet.way_back() == ""


async def test_who_mends_what_a_dead_delivery_left_keeps_its_way_back(region: ClusterRegion) -> None:
    await region.fleet.deploy(an_image("2"))
    await region.fleet.promote()
    mending = region.open(carrier=NEXT)
    await mending.deploy(an_image("1"))
    assert await mending.way_back() == "1"
    await mending.promote()
    await mending.deploy(an_image("3"))
    assert await mending.way_back() == "1"


async def test_a_lease_that_somebody_deletes_is_written_with_it_again(region: ClusterRegion) -> None:
    await region.fleet.deploy(an_image("2"))
    region.cluster.delete(LEASES, lease(NAME))
    await region.fleet.renew()
    assert await region.fleet.way_back() == "1"


async def test_the_one_who_was_replaced_cannot_say_that_it_is_over(region: ClusterRegion) -> None:
    await region.fleet.deploy(an_image("2"))
    await region.fleet.promote()
    assert (await region.open(carrier=PERSON).rollback("1")).stable
    with pytest.raises(NotTheCarrier):
        await region.fleet.settle()
    assert await region.fleet.way_back() == "1"


async def test_a_version_that_is_cold_is_started_from_its_own_replica_set(region: ClusterRegion) -> None:
    await region.fleet.deploy(an_image("2"))
    await region.fleet.promote()
    await region.time.sleep(2 * 3600)
    assert "1" not in (await region.fleet.observe()).warm
    fleet = region.open(carrier=PERSON)
    back = await fleet.restart("1")
    assert back.stable and (back.stable.version, back.weight) == ("1", 0)
    with pytest.raises(NotPossible, match="no ReplicaSet of support-llm is of version 7"):
        await fleet.restart("7")
