"""One process at a time carries a delivery in a region; the one who was replaced writes nothing there any more."""

from __future__ import annotations

import asyncio

import pytest
from fakes.clusters.region import DELIVERER, NAME, ClusterRegion, an_image
from fakes.clusters.region import on_trial as brought_on_trial
from fakes.kube.refusal import Refusal
from fakes.kube.requests import Call, Fault, LoseAnswer, Meanwhile, Refuse

from rollouts.cluster.carrier import LIVE_SECONDS, Carrier, read_lease
from rollouts.cluster.fleet import ArgoFleet
from rollouts.errors import FleetError, NotTheCarrier
from rollouts.kube.resources import HTTP_ROUTES, LEASES, MANAGER, ROLLOUTS
from rollouts.manifests.conventions import CARRIER, lease

RESUMED = Carrier(token="delivery-1-resumed", who="laptop (process 9)", over=frozenset({DELIVERER.token}))
OTHER = Carrier(token="another-delivery", who="ci-8 (process 8)")
PERSON = Carrier(token="a-rollback", who="laptop (process 5)", insists=True)


@pytest.fixture
def region() -> ClusterRegion:
    return ClusterRegion()


def lease_of(region: ClusterRegion) -> tuple[str, int]:
    held = read_lease(region.cluster.get(LEASES, lease(NAME)))
    return held.token, held.number


def marks_of(region: ClusterRegion) -> set[str]:
    found = (region.cluster.get(kind, NAME) for kind in (ROLLOUTS, HTTP_ROUTES))
    return {each["metadata"]["annotations"][CARRIER] for each in found}


async def on_trial(region: ClusterRegion) -> None:
    await brought_on_trial(region, weight=50)


def operations(fleet: ArgoFleet) -> list[object]:
    return [
        lambda: fleet.deploy(an_image("3")),
        lambda: fleet.mirror(100),
        lambda: fleet.shift(25),
        fleet.promote,
        lambda: fleet.rollback("1"),
    ]


async def test_the_lease_says_who_carries_it_and_both_objects_have_its_number(region: ClusterRegion) -> None:
    await on_trial(region)
    found = region.cluster.get(LEASES, lease(NAME))
    assert lease_of(region) == (DELIVERER.token, 1)
    assert marks_of(region) == {"1"}
    assert found["spec"]["leaseDurationSeconds"] == 900
    assert read_lease(found).who == DELIVERER.who


async def test_looking_takes_nothing(region: ClusterRegion) -> None:
    await on_trial(region)
    before = region.cluster.get(LEASES, lease(NAME))
    await region.open(carrier=None).observe()
    assert region.cluster.get(LEASES, lease(NAME)) == before


async def test_no_matter_who_was_replaced_is_refused_every_operation(region: ClusterRegion) -> None:
    await on_trial(region)
    await region.open(carrier=RESUMED).shift(50)
    assert lease_of(region) == (RESUMED.token, 2)
    before = [region.cluster.get(kind, NAME) for kind in (ROLLOUTS, HTTP_ROUTES)]
    for operation in operations(region.fleet):
        with pytest.raises(NotTheCarrier, match="support-llm in eu-west-1 is carried by"):
            await operation()  # type: ignore[operator]
    assert [region.cluster.get(kind, NAME) for kind in (ROLLOUTS, HTTP_ROUTES)] == before


async def test_no_matter_who_was_replaced_in_the_middle_of_a_wait_writes_no_more(region: ClusterRegion) -> None:
    await region.fleet.deploy(an_image("1"))
    waiting = asyncio.ensure_future(region.fleet.deploy(an_image("2")))
    await region.time.sleep(1)
    await region.open(carrier=RESUMED).deploy(an_image("2"))
    with pytest.raises(NotTheCarrier):
        await waiting


async def test_another_delivery_is_refused_while_the_carrier_lives(region: ClusterRegion) -> None:
    await on_trial(region)
    beats = asyncio.ensure_future(region.fleet.keep_renewing())
    with pytest.raises(NotTheCarrier, match=r"is carried by ci-7 \(process 7\) now"):
        await region.open(carrier=OTHER).shift(25)
    beats.cancel()
    assert lease_of(region) == (DELIVERER.token, 1)


async def test_another_delivery_goes_on_once_the_carrier_was_silent_long_enough(region: ClusterRegion) -> None:
    await on_trial(region)
    begun = region.time.elapsed
    await region.open(carrier=OTHER).shift(25)
    assert lease_of(region) == (OTHER.token, 2)
    assert region.time.elapsed - begun <= LIVE_SECONDS + 5


async def test_processes_of_one_delivery_share_their_number(region: ClusterRegion) -> None:
    await on_trial(region)
    again = region.open()
    await again.shift(25)
    await region.fleet.renew()
    await again.renew()
    await region.fleet.shift(50)
    assert lease_of(region) == (DELIVERER.token, 1)


async def test_a_step_leaves_the_lease_to_the_last_which_gives_it_back_though_it_never_took_it(
    region: ClusterRegion,
) -> None:
    step = region.open(carrier=DELIVERER.model_copy(update={"hands_on": True}))
    await step.deploy(an_image("1"))
    await step.leave()
    assert lease_of(region) == (DELIVERER.token, 1)
    await region.open(carrier=DELIVERER.model_copy(update={"continues": True})).leave()
    assert lease_of(region) == ("", 1)


async def test_the_last_step_leaves_the_lease_of_the_one_who_came_after_it(region: ClusterRegion) -> None:
    await region.open(carrier=PERSON).deploy(an_image("1"))
    await region.open(carrier=DELIVERER.model_copy(update={"continues": True})).leave()
    assert lease_of(region) == (PERSON.token, 1)


async def test_the_one_who_knows_the_key_of_a_delivery_goes_back_at_once_though_its_carrier_lives(
    region: ClusterRegion,
) -> None:
    step = region.open(carrier=DELIVERER.model_copy(update={"key": "workflow-1"}))
    await step.deploy(an_image("1"))
    await step.deploy(an_image("2"))
    await step.shift(50)
    assert (await step.carried() or OTHER).key == "workflow-1"
    begun = region.time.elapsed
    back = await region.open(carrier=OTHER.model_copy(update={"key": "workflow-1"})).rollback(None)
    assert (back.weight, lease_of(region)) == (0, (OTHER.token, 2))
    assert region.time.elapsed - begun < LIVE_SECONDS / 2
    with pytest.raises(NotTheCarrier):
        await step.shift(100)


async def test_the_key_of_a_delivery_ends_with_its_successor(region: ClusterRegion) -> None:
    first = region.open(carrier=DELIVERER.model_copy(update={"key": "workflow-1"}))
    await first.deploy(an_image("1"))
    await first.deploy(an_image("2"))
    successor = region.open(carrier=RESUMED)
    await successor.shift(50)
    beats = asyncio.ensure_future(successor.keep_renewing())
    for key in ("workflow-1", ""):
        with pytest.raises(NotTheCarrier):
            await region.open(carrier=OTHER.model_copy(update={"key": key})).rollback(None)
    beats.cancel()
    assert lease_of(region) == (RESUMED.token, 2)


async def test_no_matter_who_insists_goes_back_while_the_carrier_lives_and_the_carrier_is_refused(
    region: ClusterRegion,
) -> None:
    await on_trial(region)
    beats = asyncio.ensure_future(region.fleet.keep_renewing())
    state = await region.open(carrier=PERSON).rollback("1")
    assert (state.canary, state.weight) == (None, 0)
    assert lease_of(region) == (PERSON.token, 2)
    with pytest.raises(NotTheCarrier):
        await region.fleet.deploy(an_image("2"))
    beats.cancel()


async def test_users_go_back_before_the_lease_is_taken(region: ClusterRegion) -> None:
    await on_trial(region)
    calls = len(region.api.calls)
    await region.open(carrier=PERSON).rollback("1")
    written = [(each.plural, each.subresource) for each in region.api.calls[calls:] if each.verb not in {"get", "list"}]
    assert set(written[:2]) == {("rollouts", "status"), ("leases", "")}


async def test_nobody_needs_a_lease_to_go_back(region: ClusterRegion) -> None:
    await on_trial(region)
    forbidden = Refuse(Refusal(403, "Forbidden", "leases is forbidden"))
    region.api.faults.add(Fault(forbidden, plural="leases", times=1000))
    state = await region.open(carrier=PERSON).rollback("1")
    assert (state.canary, state.weight) == (None, 0)
    with pytest.raises(FleetError, match="forbidden"):
        await region.open(carrier=RESUMED).deploy(an_image("2"))


async def test_an_answer_that_was_lost_costs_no_number(region: ClusterRegion) -> None:
    region.api.faults.add(Fault(LoseAnswer(), plural="leases", verbs=frozenset({"create"})))
    await on_trial(region)
    assert lease_of(region) == (DELIVERER.token, 1)


async def test_a_lease_that_somebody_deleted_comes_back_with_a_higher_number(region: ClusterRegion) -> None:
    await on_trial(region)
    region.cluster.delete(LEASES, lease(NAME))
    await region.fleet.renew()
    assert lease_of(region) == (DELIVERER.token, 2)
    assert marks_of(region) == {"2"}
    await region.fleet.shift(25)


async def test_no_matter_who_was_replaced_in_the_middle_of_a_deploy_does_not_put_his_own_mark_back(
    region: ClusterRegion,
) -> None:
    """What was said before a refusal is put back, and the mark of the one who caused the refusal is not part of it."""
    await region.fleet.deploy(an_image("1"))

    def replace(_: Call) -> None:
        region.cluster.edit(
            LEASES, lease(NAME), lambda body: body["spec"].update(holderIdentity="x", leaseTransitions=2)
        )
        for kind in (ROLLOUTS, HTTP_ROUTES):
            region.cluster.patch(kind, NAME, {"metadata": {"annotations": {CARRIER: "2"}}}, manager=MANAGER)

    region.api.faults.add(Fault(Meanwhile(replace), plural=HTTP_ROUTES.plural, verbs=("patch",)))
    with pytest.raises(NotTheCarrier):
        await region.fleet.deploy(an_image("2"))
    assert marks_of(region) == {"2"}
