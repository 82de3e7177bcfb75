"""A trial without a carrier goes back by itself; one that somebody carries stays, whatever the API server does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from fakes.argo.objects import stamp
from fakes.clusters.region import DELIVERER, LABELS, NAME, ClusterRegion, an_image
from fakes.clusters.region import on_trial as brought_on_trial
from fakes.kube.refusal import Refusal
from fakes.kube.requests import Fault, Meanwhile, Refuse

from rollouts.cluster.carrier import GUARD, Carrier, read_lease
from rollouts.cluster.carrier import UNATTENDED_SECONDS as DEFAULT_SECONDS
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.guard import POLL_SECONDS, Guard, GuardAction
from rollouts.errors import FleetError, Forbidden, NotTheCarrier
from rollouts.kube.resources import LEASES, ROLLOUTS
from rollouts.kube.retry import deadline
from rollouts.manifests.conventions import UNATTENDED, lease
from rollouts.model import RegionPhase
from tidegate.testing import versions

UNATTENDED_SECONDS = 300.0
CARRIER = DELIVERER.model_copy(update={"unattended_seconds": UNATTENDED_SECONDS})


@pytest.fixture
def region() -> ClusterRegion:
    return ClusterRegion()


async def on_trial(region: ClusterRegion, *, weight: int = 50) -> ArgoFleet:
    """Half of the users on version 2; the one who brought it dies at once."""
    return await brought_on_trial(region, carrier=CARRIER, weight=weight)


async def looks(guard: Guard, region: ClusterRegion, seconds: float) -> list[GuardAction]:
    """What it did in so many seconds; an API server that does not answer is asked again."""
    found, end = [], region.time.monotonic() + seconds
    while region.time.monotonic() < end:
        try:
            found.append(await guard.check())
        except FleetError:
            found.append(None)
        await region.time.sleep(POLL_SECONDS)
    return [each for each in found if each]


@asynccontextmanager
async def carried(region: ClusterRegion, fleet: ArgoFleet) -> AsyncIterator[None]:
    beats = asyncio.ensure_future(fleet.keep_renewing())
    try:
        yield
    finally:
        beats.cancel()


def written(region: ClusterRegion, since: int) -> list[object]:
    """What was asked of the API server since so many calls, but for looks and questions."""
    calls = region.api.calls[since:]
    return [each for each in calls if each.verb not in {"get", "list"} and each.plural != "selfsubjectaccessreviews"]


def holder(region: ClusterRegion) -> str:
    return read_lease(region.cluster.get(LEASES, lease(NAME))).token


async def test_a_trial_that_nobody_carries_goes_back(region: ClusterRegion) -> None:
    await on_trial(region)
    guard, died = region.guard(), region.time.now()
    assert await looks(guard, region, UNATTENDED_SECONDS - POLL_SECONDS) == []
    assert region.splits[-1] == (50, 0)
    (back,) = await looks(guard, region, 60)
    assert (back.state.phase, back.state.canary, back.state.weight) == (RegionPhase.STEADY, None, 0)
    assert (back.taken.version, back.taken.who) == ("2", CARRIER.who)
    assert timedelta() <= back.taken.at - died - timedelta(seconds=UNATTENDED_SECONDS) <= timedelta(seconds=20)
    assert region.versions()[0] == "1"
    # Given back, with the next number.
    assert (holder(region), read_lease(region.cluster.get(LEASES, lease(NAME))).number) == ("", 2)


async def test_it_is_told_to_who_looks_and_to_who_comes_back_until_the_next_deployment(region: ClusterRegion) -> None:
    fleet = await on_trial(region)
    (back,) = await looks(region.guard(), region, UNATTENDED_SECONDS + 60)
    told = str(back.taken)
    assert told.startswith("version 2 was rolled back by the region's guard at 2026-01-01 00:0")
    assert told.endswith(f" UTC: nothing was heard of its carrier (ci-7 (process 7)) since {back.taken.since:%H:%M:%S}")
    assert (await region.open(carrier=None).observe()).unattended == back.taken
    for operation in (fleet.observe, lambda: fleet.deploy(an_image("2"))):
        with pytest.raises(NotTheCarrier, match=re.escape(f"support-llm in eu-west-1: {told}")):
            await operation()
    state = await region.open(carrier=Carrier(token="delivery-2", who="ci-8")).deploy(an_image("3"))
    assert state.unattended is None
    assert UNATTENDED not in region.rollout["metadata"]["annotations"]


@pytest.mark.parametrize("seen_before", [True, False], ids=["the guard lives on", "the guard starts with it"])
async def test_a_lease_that_somebody_deleted_keeps_no_dead_carriers_trial(
    region: ClusterRegion, seen_before: bool
) -> None:
    await on_trial(region)
    guard, lasts = region.guard(), UNATTENDED_SECONDS if seen_before else DEFAULT_SECONDS
    if seen_before:
        await looks(guard, region, 2 * POLL_SECONDS)
    region.cluster.delete(LEASES, lease(NAME))
    assert await looks(guard, region, lasts - 4 * POLL_SECONDS) == []
    (back,) = await looks(guard, region, 120)
    assert (back.state.canary, back.taken.who) == (None, "its Lease is gone")


async def test_a_lease_that_somebody_deleted_is_made_again_by_a_carrier_that_lives(region: ClusterRegion) -> None:
    fleet = await on_trial(region)
    guard = region.guard()
    async with carried(region, fleet):
        await looks(guard, region, 60)
        region.cluster.delete(LEASES, lease(NAME))
        assert await looks(guard, region, 2 * DEFAULT_SECONDS) == []
    assert holder(region) == CARRIER.token


@pytest.mark.parametrize("another", [False, True], ids=["the guard lives on", "the guard starts again"])
async def test_a_controller_that_sees_the_abort_late_is_one_rescue(region: ClusterRegion, another: bool) -> None:
    """As after an outage of the API server, whose watches it begins again up to a minute later; here it takes longer
    than a carrier may be silent."""
    await on_trial(region)
    region.simulation.controller_down = True
    guard = region.guard()
    (back,) = await looks(guard, region, UNATTENDED_SECONDS + 60)
    assert (region.splits[-1], bool(back.state.problem), holder(region)) == ((0, 0), True, GUARD)
    guard = region.guard() if another else guard
    told = await looks(guard, region, UNATTENDED_SECONDS + 120)
    region.simulation.controller_down = False
    told += await looks(guard, region, 60)
    assert [each.taken for each in told] == [back.taken] * another
    assert (await region.open(carrier=None).observe()).unattended == back.taken
    assert holder(region) == ""


async def test_without_a_trial_it_only_looks(region: ClusterRegion) -> None:
    await region.open(carrier=CARRIER).deploy(an_image("1"))
    calls = len(region.api.calls)
    assert await looks(region.guard(), region, UNATTENDED_SECONDS + 60) == []
    assert written(region, calls) == []


async def test_a_first_version_that_nobody_carries_stays_asked_for(region: ClusterRegion) -> None:
    region.simulation.image_pull_fails("1")
    bringing = asyncio.ensure_future(region.open(carrier=CARRIER).deploy(an_image("1")))
    await region.time.sleep(5)
    bringing.cancel()
    assert await looks(region.guard(), region, 2 * UNATTENDED_SECONDS) == []


async def test_a_lease_that_was_given_back_counts_from_its_last_sign(region: ClusterRegion) -> None:
    fleet = await on_trial(region)
    await fleet.leave()
    assert holder(region) == ""
    guard = region.guard()
    assert await looks(guard, region, UNATTENDED_SECONDS - POLL_SECONDS) == []
    assert len(await looks(guard, region, 60)) == 1


@pytest.mark.parametrize("seen_before", [True, False], ids=["the guard lives on", "the guard starts with it"])
async def test_an_api_server_that_comes_back_ends_no_trial_that_lives(region: ClusterRegion, seen_before: bool) -> None:
    """For ten minutes nobody can renew; then the carrier has 30 s to say that it lives, and needs 10."""
    fleet = await on_trial(region)
    guard = region.guard()
    async with carried(region, fleet):
        if seen_before:
            await looks(guard, region, 60)
        region.api.vanish()
        assert await looks(guard, region, 2 * UNATTENDED_SECONDS) == []
        region.api.come_back()
        assert await looks(guard if seen_before else region.guard(), region, UNATTENDED_SECONDS + 60) == []
    assert region.splits[-1] == (50, 0)


async def test_a_carrier_that_is_heard_of_at_the_last_moment_keeps_its_region(region: ClusterRegion) -> None:
    fleet = await on_trial(region)
    guard = region.guard()
    await looks(guard, region, UNATTENDED_SECONDS - POLL_SECONDS)

    def renewed(_: object) -> None:
        region.cluster.edit(LEASES, lease(NAME), lambda it: it["spec"].update(renewTime=stamp(region.time.now())))

    region.api.faults.add(Fault(Meanwhile(renewed), plural="leases", verbs=frozenset({"update"})))
    assert await looks(guard, region, 30) == []
    assert (region.splits[-1], holder(region)) == ((50, 0), CARRIER.token)
    await fleet.renew()
    assert await looks(guard, region, UNATTENDED_SECONDS - 30) == []


async def test_a_lease_that_a_guard_left_behind_is_let_go(region: ClusterRegion) -> None:
    await on_trial(region)
    await region.fleet.rollback("1")
    region.cluster.edit(LEASES, lease(NAME), lambda it: it["spec"].update(holderIdentity=GUARD))
    assert await looks(region.guard(), region, 20) == []
    assert holder(region) == ""


async def at_work(region: ClusterRegion, seconds: float) -> asyncio.Future[list[GuardAction]]:
    """A guard whose way back is refused, and goes on for so long."""
    await on_trial(region)
    full = Refuse(Refusal(500, "InternalError", "no space left"))
    region.api.faults.add(Fault(full, plural="rollouts", subresource="status", times=None))
    guarding = asyncio.ensure_future(looks(region.guard(), region, UNATTENDED_SECONDS + seconds))
    await region.time.sleep(UNATTENDED_SECONDS + 15)
    assert holder(region) == GUARD
    return guarding


async def test_what_a_guard_began_the_next_one_ends(region: ClusterRegion) -> None:
    (await at_work(region, 40)).cancel()
    region.api.faults.clear()
    (back,) = await looks(region.guard(), region, 60)
    assert (back.state.canary, back.taken.who) == (None, CARRIER.who)


async def test_no_matter_who_takes_the_region_over_meanwhile_keeps_it(region: ClusterRegion) -> None:
    """A `resume` that comes while the guard's way back is refused is not ended by it."""
    guarding = await at_work(region, 400)
    region.api.faults.clear()
    fleet = region.open(carrier=Carrier(token="resumed", who="laptop", over=frozenset({GUARD})))
    await fleet.deploy(an_image("2"))
    async with carried(region, fleet):
        assert await guarding == []
        assert (await fleet.observe()).canary is not None


async def test_a_delivery_waits_for_a_guard_at_work(region: ClusterRegion) -> None:
    """A `resume` of several regions may meet the guard in one of them: making way would leave the others behind."""
    guarding = await at_work(region, 200)
    resumed = asyncio.ensure_future(region.open(carrier=Carrier(token="resumed", who="laptop")).deploy(an_image("2")))
    await region.time.sleep(30)
    assert not resumed.done()
    region.api.faults.clear()
    assert versions(await resumed)[:2] == ("1", "2")
    (back,) = await guarding
    assert back.state.canary is None


async def test_it_waits_no_longer_than_an_operation_may_take(region: ClusterRegion) -> None:
    guarding = await at_work(region, UNATTENDED_SECONDS)
    with pytest.raises(NotTheCarrier, match="carried by the region's guard now"), deadline(region.time, 90):
        await region.open(carrier=Carrier(token="resumed", who="laptop")).deploy(an_image("2"))
    guarding.cancel()


async def test_a_person_who_acts_by_hand_long_after_a_delivery_has_time(region: ClusterRegion) -> None:
    """`rollout undo`, or a step by hand: the Lease is days old by then, and the engines may be cold."""
    fleet = await on_trial(region)
    await fleet.rollback("1")
    await fleet.leave()
    await region.time.sleep(3 * 86400)
    watching = region.guard()
    await looks(watching, region, 60)
    template = region.rollout["spec"]["template"]
    template["spec"]["containers"][0]["image"] = an_image("9").image
    region.cluster.patch(ROLLOUTS, NAME, {"spec": {"template": template}}, manager="tidegate")
    for guard in (watching, region.guard()):
        assert await looks(guard, region, UNATTENDED_SECONDS / 3) == []


async def test_a_rollout_of_somebody_else_is_left_alone(region: ClusterRegion) -> None:
    await on_trial(region)
    region.edit_rollout(lambda it: it["metadata"].update(labels=dict(LABELS)))
    before = region.rollout
    assert await looks(region.guard(), region, UNATTENDED_SECONDS + 60) == []
    assert region.rollout == before


async def test_rights_that_are_missing_are_told_before_they_are_needed(region: ClusterRegion) -> None:
    await on_trial(region)
    region.api.access.allow_only({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]})
    with pytest.raises(
        Forbidden,
        match=r"may not create leases, update leases support-llm-carrier, .*rollouts support-llm, .*apply",
    ):
        await region.guard().check()


@pytest.mark.long
async def test_lines_say_what_changed_and_nothing_else(region: ClusterRegion) -> None:
    await on_trial(region)
    lines: list[str] = []
    guarding = region.guard(tell=lines.append)
    running = asyncio.ensure_future(guarding.run())
    await region.time.sleep(60)
    assert (lines, guarding.problem) == (["guarded"], "")
    region.api.vanish()
    await region.time.sleep(60)
    assert guarding.problem
    region.api.come_back()
    await region.time.sleep(UNATTENDED_SECONDS + 120)
    running.cancel()
    assert [line.partition(":")[0] for line in lines] == ["guarded", "not guarded", "guarded", "eu-west-1"]
    assert lines[-1].endswith("; all users are on version 1")
