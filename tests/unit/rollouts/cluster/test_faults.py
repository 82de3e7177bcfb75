"""Whatever happens between a fleet and its cluster, the end is right, nothing is done twice and nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
from fakes.clusters.region import NAME, ClusterRegion, an_image
from fakes.kube.refusal import Refusal, conflict
from fakes.kube.requests import WRITES, Call, Effect, Fault, LoseAnswer, LoseRequest, Meanwhile, Refuse

from rollouts.argo.model import revision_of
from rollouts.cluster.fleet import ArgoFleet
from rollouts.errors import FleetError, NotPossible, Unreachable
from rollouts.kube.resources import HTTP_ROUTES, REPLICA_SETS, ROLLOUTS
from rollouts.model import RegionState
from tidegate.testing import versions

Operation = Callable[[ArgoFleet], Awaitable[RegionState]]

STORY: Sequence[tuple[str, Operation]] = (
    ("the champion serves", lambda fleet: fleet.deploy(an_image("1"))),
    ("a canary is up", lambda fleet: fleet.deploy(an_image("2"))),
    ("copies", lambda fleet: fleet.mirror(100)),
    ("no copies", lambda fleet: fleet.mirror(0)),
    ("5 %", lambda fleet: fleet.shift(5)),
    ("50 %", lambda fleet: fleet.shift(50)),
    ("promoted", lambda fleet: fleet.promote()),
    ("back", lambda fleet: fleet.rollback("1")),
    ("another canary is up", lambda fleet: fleet.deploy(an_image("3"))),
    ("25 %", lambda fleet: fleet.shift(25)),
    ("without it", lambda fleet: fleet.rollback("1")),
)
"""Every operation, both ways back."""

UNAVAILABLE = Refuse(Refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request"))
BUSY = Refuse(Refusal(429, "TooManyRequests", "too many requests, please try again later", retry_after=3))
CONFLICT = Refuse(conflict(ROLLOUTS, ""))

Seen = tuple[object, ...]


def told(state: RegionState) -> Seen:
    return (state.phase, versions(state), state.weight, state.mirror, state.problem)


async def run(region: ClusterRegion, fleet: ArgoFleet | None = None) -> list[Seen]:
    """The whole story; what each operation returned."""
    return [told(await operation(fleet or region.fleet)) for _, operation in STORY]


@pytest.fixture(scope="module")
def calm() -> tuple[list[Seen], ClusterRegion]:
    """The story without any fault, and the region after it."""
    import asyncio

    region = ClusterRegion()
    return asyncio.run(run(region)), region


def done_in(region: ClusterRegion) -> tuple[object, ...]:
    """What a fleet did to a region that nothing can take back: pods started, users moved, revisions made."""
    return (
        region.splits,
        sorted(revision_of(each) for each in region.cluster.list(REPLICA_SETS)),
        region.cluster.get(ROLLOUTS, NAME)["spec"]["template"],
        region.cluster.get(HTTP_ROUTES, NAME)["spec"],
    )


def interfere(region: ClusterRegion) -> Callable[[Call], None]:
    """Somebody else writes the same object a moment before."""

    def write(call: Call) -> None:
        for resource in (ROLLOUTS, HTTP_ROUTES):
            if call.plural == resource.plural and region.cluster.find(resource, call.name):
                noted = {"metadata": {"annotations": {"somebody.example/was-here": str(len(region.api.calls))}}}
                region.cluster.patch(resource, call.name, noted, manager="kubectl-annotate")

    return write


@pytest.mark.parametrize(
    ("verbs", "effect"),
    [
        pytest.param(("update", "patch"), CONFLICT, id="a conflict on every write"),
        pytest.param((), BUSY, id="429 with Retry-After on every request"),
        pytest.param((), LoseRequest(), id="no connection for every request"),
        pytest.param((), LoseAnswer(), id="no answer to any request that was done"),
    ],
)
async def test_each_request_fails_once_in_every_operation(
    calm: tuple[list[Seen], ClusterRegion], verbs: tuple[str, ...], effect: Effect
) -> None:
    states, well = calm
    region = ClusterRegion()
    for (what, operation), state in zip(STORY, states, strict=True):
        region.api.faults.clear()
        region.api.faults.once_each(Fault(effect, verbs=verbs))
        assert told(await operation(region.fleet)) == state, what
    assert done_in(region) == done_in(well)


@pytest.mark.long
async def test_somebody_else_writes_before_every_write_of_ours(calm: tuple[list[Seen], ClusterRegion]) -> None:
    states, well = calm
    region = ClusterRegion()
    for (what, operation), state in zip(STORY, states, strict=True):
        region.api.faults.clear()
        region.api.faults.once_each(Fault(Meanwhile(interfere(region)), verbs=WRITES))
        assert told(await operation(region.fleet)) == state, what
    assert done_in(region) == done_in(well)


@pytest.mark.parametrize("seed", range(5))
async def test_any_faults_anywhere(calm: tuple[list[Seen], ClusterRegion], seed: int) -> None:
    states, well = calm
    dice, region = random.Random(seed), ClusterRegion()
    effects = [UNAVAILABLE, BUSY, LoseRequest(), LoseAnswer(), Meanwhile(interfere(region))]
    for _ in range(60):
        region.api.faults.add(Fault(dice.choice(effects), after=dice.randrange(300)))
    assert await run(region) == states
    assert done_in(region) == done_in(well)


async def test_a_busy_server_does_not_keep_users_on_the_canary() -> None:
    region = ClusterRegion()
    for version in ("1", "2"):
        await region.fleet.deploy(an_image(version))
    await region.fleet.shift(50)
    region.api.faults.busy(retry_after=30, times=3)
    region.api.faults.busy(retry_after=30, verbs=("patch",), times=2)
    begun = region.time.elapsed
    await region.fleet.rollback("1")
    assert region.splits[-2:] == [(50, 0), (0, 0)]
    assert region.split_at[-1] - begun < 1


async def test_a_token_that_expired_before_its_successor_was_there(calm: tuple[list[Seen], ClusterRegion]) -> None:
    region = ClusterRegion()
    refused = Refuse(Refusal(401, "Unauthorized", "Unauthorized"))
    for number in range(0, 200, 25):
        # Twice: with the old one, and with the one that was got instead.
        region.api.faults.add(Fault(refused, after=number, times=2))
    assert await run(region) == calm[0]
    assert done_in(region) == done_in(calm[1])


@pytest.mark.parametrize("step", [pytest.param(step, id=STORY[step][0]) for step in (1, 6, 10)])
async def test_a_region_that_is_gone_for_a_whole_operation_and_comes_back(
    calm: tuple[list[Seen], ClusterRegion], step: int
) -> None:
    states, well = calm
    region = ClusterRegion()
    for number, ((what, operation), state) in enumerate(zip(STORY, states, strict=True)):
        if number == step:
            region.api.vanish()
            region.time.call_later(400, region.api.come_back)
        assert told(await operation(region.fleet)) == state, what
    assert region.time.elapsed >= 400
    assert done_in(region) == done_in(well)


async def test_a_region_that_stays_away_is_given_up_and_goes_on_serving() -> None:
    region = ClusterRegion(retry_seconds=600)
    await region.fleet.deploy(an_image("1"))
    region.api.vanish()
    with pytest.raises(Unreachable):
        await region.fleet.deploy(an_image("2"))
    assert 600 <= region.time.elapsed < 700
    region.api.come_back()
    assert versions(await region.fleet.observe()) == ("1", None, None)


async def test_a_delivery_that_died_at_any_write_goes_on_from_another_machine(
    calm: tuple[list[Seen], ClusterRegion],
) -> None:
    """Each write is done and its sender gone before it hears so; somebody else then says the same operation."""
    states, well = calm
    region, died = ClusterRegion(), 0
    for (what, operation), state in zip(STORY, states, strict=True):
        region.api.faults.clear()
        region.api.faults.once_each(Fault(LoseAnswer(), verbs=WRITES))
        for _ in range(10):
            try:
                assert told(await operation(region.open(retry_seconds=0))) == state, what
            except (FleetError, NotPossible):
                died += 1
            else:
                break
    assert died >= len(STORY)
    assert done_in(region) == done_in(well)
