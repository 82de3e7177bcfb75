"""A delivery step by step, each step a fresh process: it ends as one process would have ended it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fakes.delivery.identities import FakeProver
from fakes.delivery.world import CHALLENGER, CHAMPION, SIDE_BY_SIDE, Steps, World, a_spec

from pipelines.authority.answering import Hearing, Speaker
from pipelines.events.journal import Journal
from pipelines.model import Ending
from pipelines.run.resume import take_step
from registry.errors import DeliveryLost
from registry.model import Event
from tidegate.core.errors import ExitCode, OutsideError, UsageError

EVERYWHERE = {"eu-west-1": CHALLENGER, "us-east-1": CHALLENGER}
NOWHERE = {"eu-west-1": CHAMPION, "us-east-1": CHAMPION}


class Died(BaseException):
    """What ends a process where it stands: nothing of ours catches it."""


def die() -> None:
    raise Died


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Of two waves without shadow."""
    return World(tmp_path, a_spec(shadow=""))


@pytest.fixture
def last(tmp_path: Path) -> Steps:
    """Of one region, for what comes after the last one."""
    return Steps(World(tmp_path, a_spec(shadow="", regions="regions: {waves: [[eu-west-1]], bake: 10s}")), tmp_path)


@pytest.fixture
def steps(world: World, tmp_path: Path) -> Steps:
    return Steps(world, tmp_path)


def told(world: World) -> list[tuple[str, str]]:
    return [(event.step, event.kind) for event in world.ledger.events]


async def test_no_step_goes_before_those_that_it_comes_after(steps: Steps) -> None:
    await steps.until("smoke@eu-west-1")
    with pytest.raises(UsageError, match=r"promote@eu-west-1 comes after offline@eu-west-1, which is not done"):
        await steps.take("promote@eu-west-1")


async def test_a_verdict_takes_its_region_back_before_anybody_closes(steps: Steps, world: World) -> None:
    world.evidence.serves("canary", CHALLENGER, failed=0.2)
    *_, last = await steps.until("finalize")
    assert (last.step, last.done, last.exit_code) == ("canary@eu-west-1/10", False, ExitCode.ROLLED_BACK)
    assert world.fleets["eu-west-1"].proxy.routes.weight == 0
    world.evidence.serves("canary", CHALLENGER)
    again = await steps.take("canary@eu-west-1/10")
    assert (again.done, again.exit_code) == (False, ExitCode.ROLLED_BACK)
    assert again.reason.startswith("the delivery goes no further: canary@eu-west-1/10: gate errors")
    result = await steps.close()
    assert (result.ending, result.exit_code) == (Ending.ROLLED_BACK, ExitCode.ROLLED_BACK)
    assert result.reason.startswith("canary@eu-west-1/10: gate errors: canary failed")
    assert world.stable_versions() == NOWHERE
    assert world.registry.marks["tidegate.outcome"] == "rolled-back"


async def test_what_a_killed_step_had_written_and_not_kept_is_not_asked_of_the_next(steps: Steps, world: World) -> None:
    step = "canary@eu-west-1/50"
    wanted = step, "verdict"
    await steps.until("canary@eu-west-1/10")

    def die_once_it_is_told() -> None:
        told_of = [event.data["transcripts"] for event in world.ledger.events if (event.step, event.kind) == wanted]
        if len(told_of) > 1 and told_of[0] != told_of[-1]:
            die()
        world.when(*wanted, die_once_it_is_told)

    with pytest.MonkeyPatch.context() as patch:
        # A disk that is gone with its machine, though verdicts were told of what was on it.
        patch.setattr(Journal, "attach", lambda *_, **__: None)
        die_once_it_is_told()
        with pytest.raises(Died):
            await steps.take(step)
    await world.clock.sleep(7)
    assert (await steps.deliver()).ending is Ending.DELIVERED


@pytest.mark.long
async def test_a_step_that_never_came_back_ends_the_delivery_with_its_own_ending(last: Steps) -> None:
    await last.until("bake@1")
    last.world.registry.gone = True
    with pytest.raises(OutsideError):
        await last.take("finalize")
    result = await last.close()
    assert (result.ending, result.exit_code) == (Ending.FAILED, ExitCode.OUTSIDE)
    assert result.reason == "finalize: the registry is not there"
    assert last.world.stable_versions() == {"eu-west-1": CHAMPION}


async def test_a_workflow_that_stops_between_two_steps_is_taken_back(steps: Steps, world: World) -> None:
    await steps.until("canary@us-east-1/10")
    result = await steps.close()
    assert (result.ending, result.exit_code) == (Ending.INTERRUPTED, ExitCode.INTERRUPTED)
    assert result.reason == "ended before canary@us-east-1/50 was done"
    assert world.stable_versions() == NOWHERE


async def test_a_step_that_is_asked_to_stop_says_so_and_leaves_the_rest_to_the_one_who_closes(
    steps: Steps, world: World
) -> None:
    await steps.until("offline@eu-west-1")
    task = asyncio.create_task(steps.take("canary@eu-west-1/10"))
    world.when("canary@eu-west-1/10", "traffic", task.cancel)
    taken = await task
    assert (taken.done, taken.exit_code) == (False, ExitCode.OUTSIDE)
    assert (await steps.close()).reason == "canary@eu-west-1/10: asked to stop before the end"
    assert world.stable_versions() == NOWHERE


async def test_closing_again_changes_nothing_and_says_the_same(last: Steps) -> None:
    first = await last.deliver()
    before = told(last.world)
    assert await last.close() == first
    assert told(last.world) == before


async def test_closing_that_died_before_its_end_is_finished(last: Steps) -> None:
    await last.until("finalize")
    last.world.when("delivery", "closed", die)
    with pytest.raises(Died):
        await last.close()
    assert last.world.ledger.outcome is None
    assert (await last.close()).ending is Ending.DELIVERED
    assert last.world.ledger.outcome == "delivered"
    assert told(last.world).count(("delivery", "closed")) == 1


async def test_a_delivery_that_others_closed_is_not_touched(steps: Steps, world: World) -> None:
    await steps.until("canary@eu-west-1/10")
    world.ledger.bury()
    swaps = len(world.fleets["eu-west-1"].proxy.swaps)
    with pytest.raises(DeliveryLost):
        await steps.take("canary@eu-west-1/50")
    with pytest.raises(DeliveryLost):
        await steps.close()
    assert len(world.fleets["eu-west-1"].proxy.swaps) == swaps


async def test_evidence_goes_on_from_weight_to_weight_though_each_is_another_machine(
    steps: Steps, world: World, tmp_path: Path
) -> None:
    await steps.until("canary@eu-west-1/10")
    first = world.ledger.files["evidence/canary@eu-west-1.jsonl"]
    await steps.take("canary@eu-west-1/50")
    second = world.ledger.files["evidence/canary@eu-west-1.jsonl"]
    assert second.startswith(first)
    assert second.count(b'"kind":"terms"') == 1
    assert b'{"kind":"restart","step":"canary@eu-west-1/50"}' in second


async def test_regions_of_one_wave_do_not_wait_for_each_other(tmp_path: Path) -> None:
    world = World(tmp_path, a_spec(**SIDE_BY_SIDE | {"shadow": ""}))
    steps = Steps(world, tmp_path)
    await steps.take("build")
    lanes = [[each for each in steps.ids if f"@{region}" in each] for region in ("eu-west-1", "us-east-1")]

    async def walk(lane: list[str]) -> None:
        for step in lane:
            assert (await take_step(steps.process(), step)).done

    await asyncio.gather(*(walk(lane) for lane in lanes))
    assert (await steps.deliver()).ending is Ending.DELIVERED
    assert world.stable_versions() == EVERYWHERE


async def test_a_step_does_not_begin_once_somebody_has_asked_the_delivery_to_end(last: Steps) -> None:
    await last.until("bake@1")
    last.world.ledger.append(
        Event(at=last.world.clock.now(), step="delivery", kind="stop", message="asked to stop by ann")
    )
    taken = await last.take("finalize")
    assert (taken.done, taken.reason, taken.exit_code) == (False, "asked to stop by ann", ExitCode.INTERRUPTED)
    assert (await last.close()).ending is Ending.INTERRUPTED


async def test_a_step_goes_on_only_for_somebody_who_may_carry_the_delivery_on(tmp_path: Path) -> None:
    resume = "traffic: {requests_per_second: 200}\nresume: {by: {groups: [on-call]}}"
    steps = Steps(World(tmp_path, a_spec(traffic=resume)), tmp_path)
    world, ledger = steps.world, steps.world.ledger
    await steps.until("build")
    # A name alone, as anybody writes it who reaches the ledger.
    ledger.append(Event(at=world.now(), step="delivery", kind="resumed", message="bob", data={"by": "bob"}))
    with pytest.raises(UsageError, match=r"bob carried this delivery on at .* and may not: a name alone"):
        await steps.take("deploy@eu-west-1")
    assert world.fleets["eu-west-1"].engines.running() == [CHAMPION]
    hearing = Hearing(world.spec, ledger.delivery, ledger.recorded(), world.identities, world.clock)
    proven = hearing.resumption(Speaker(prover=FakeProver("bob of on-call")))
    assert proven
    ledger.append(proven)
    assert (await steps.take("deploy@eu-west-1")).done
    # Going back is everybody's right.
    ledger.append(Event(at=world.now(), step="delivery", kind="resumed", message="bob", data={"by": "bob"}))
    assert (await steps.close()).ending is Ending.INTERRUPTED
