"""A delivery reaches every region or none; which of the two, why, and how it is told. One table, two drivers: one
process that carries it to its end, and each step in a process of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHALLENGER_URL, CHAMPION, SIDE_BY_SIDE, Steps, World, a_spec

from pipelines.model import Ending
from registry.model import ServingAliases
from tidegate.core.errors import ExitCode, OutsideError

HERE, THERE = "eu-west-1", "us-east-1"
EVERYWHERE = {HERE: CHALLENGER, THERE: CHALLENGER}
NOWHERE = {HERE: CHAMPION, THERE: CHAMPION}

Given = Callable[[World], object]


@pytest.fixture
def wave(tmp_path: Path) -> World:
    """Two regions that go together."""
    return World(tmp_path, a_spec(**SIDE_BY_SIDE))


def says(*answers: str) -> Given:
    """The challenger answers so, one after the other, and then always the last."""

    def given(world: World) -> None:
        left = list(answers)
        world.chat.scripts[CHALLENGER_URL] = lambda prompt: left.pop(0) if len(left) > 1 else left[0]

    return given


def serves(role: str = "canary", **how: float) -> Given:
    return lambda world: world.evidence.serves(role, CHALLENGER, **how)


def at(step: str, kind: str, then: Given) -> Given:
    """Once that step says that kind of thing."""
    return lambda world: world.when(step, kind, lambda: then(world))


def meanwhile(work: Callable[[World], object]) -> Given:
    """Somebody else does it while the delivery goes on."""

    def given(world: World) -> None:
        world.others = asyncio.ensure_future(work(world))  # type: ignore[attr-defined, arg-type]

    return given


def sets(name: str, value: object) -> Given:
    owner, _, field = name.partition(".")
    return lambda world: setattr(getattr(world, owner), field, value)


def lost(*_: object) -> None:
    raise OutsideError("the store does not answer")


END_TRIAL = meanwhile(lambda world: world.fleets[HERE].end_trial("nothing was heard of ci-7 for 15m"))
TAKE_BACK = meanwhile(lambda world: world.fleets[HERE].rollback(CHAMPION))
STARTED, TRAFFIC = "started", "traffic"
BACK, OUTSIDE, STOPPED = Ending.ROLLED_BACK, Ending.FAILED, Ending.INTERRUPTED

STORIES: dict[str, tuple[Given, Ending, str]] = {
    "wrong answers": (says("fast and wrong"), BACK, "offline@eu-west-1: gate quality: canary scores 0.00 against 1.00"),
    "another answer the second time": (says("one", "one two", "one two three"), BACK, "gate determinism"),
    "slow for the paired probe": (
        lambda world: world.chat.ttft.update({CHALLENGER_URL: 0.3}),
        BACK,
        "shadow@eu-west-1: gate latency: canary TTFT is 300 ms against 100 ms on stable",
    ),
    "slow only under users": (serves(ttft=0.3), BACK, "canary@eu-west-1/10: gate latency"),
    "failing requests": (serves(failed=0.2), BACK, "canary@eu-west-1/10: gate errors: canary failed"),
    "too little traffic": (serves(per_second=0.05), Ending.INCONCLUSIVE, "canary@"),
    "a mirror that never arrives": (
        lambda world: world.evidence.loads.pop(("shadow", CHALLENGER)), Ending.INCONCLUSIVE, "shadow@eu-west-1"
    ),
    "evidence that is gone for good": (
        at("canary@eu-west-1/10", STARTED, sets("evidence.gone", True)), OUTSIDE, "Prometheus is not there"
    ),
    "a canary that dies": (
        at("canary@eu-west-1/50", STARTED, lambda world: world.fleets[HERE].kill(CHALLENGER, last_words="OOM")),
        BACK,
        "the canary does not serve; its log ends with: OOM",
    ),
    "a promoted region that breaks while it bakes": (
        at("bake@1", STARTED, lambda world: world.fleets[HERE].kill(CHALLENGER)), BACK, "bake@1: eu-west-1: gate health"
    ),
    "an engine that does not start": (
        lambda world: world.fleets[THERE].refuse(CHALLENGER), OUTSIDE, "died while it started"
    ),
    "aliases that cannot be moved": (sets("registry.breaks_off", True), OUTSIDE, "the registry went away"),
    # Whoever carries it hung, and goes on now, be it before an operation or in the middle of a look.
    "a trial that the region ended before an operation": (
        at("smoke@eu-west-1", STARTED, END_TRIAL), STOPPED, "UTC: nothing was heard of ci-7 for 15m"
    ),
    "a trial that the region ended within a look": (
        at("canary@eu-west-1/50", STARTED, END_TRIAL), STOPPED, "version 2 was rolled back here at "
    ),
    "a region that somebody rolls back within a look": (at("canary@eu-west-1/50", TRAFFIC, TAKE_BACK), STOPPED, HERE),
    "a region that somebody rolls back while it bakes": (at("bake@1", STARTED, TAKE_BACK), STOPPED, HERE),
}  # fmt: skip
CODES = {
    BACK: ExitCode.ROLLED_BACK,
    OUTSIDE: ExitCode.OUTSIDE,
    # Nobody asked this process to stop.
    STOPPED: ExitCode.OUTSIDE,
    Ending.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}
IN_STEPS = ("failing requests", "a canary that dies", "a promoted region that breaks while it bakes")


@pytest.mark.parametrize(
    ("story", "driver"), [*((each, "one process") for each in STORIES), *((each, "steps") for each in IN_STEPS)]
)
async def test_every_region_goes_back_and_the_version_is_told_why(
    world: World, tmp_path: Path, story: str, driver: str
) -> None:
    given, ending, reason = STORIES[story]
    (tmp_path / "disks").mkdir()
    if driver == "steps":
        steps = Steps(world, tmp_path / "disks")
    given(world)
    result = await (steps.deliver() if driver == "steps" else world.deliver())
    assert (result.ending, result.exit_code) == (ending, CODES[ending]), result.reason
    assert reason in result.reason
    assert world.stable_versions() == NOWHERE
    assert world.registry.champion == CHAMPION
    assert world.ledger.outcome == str(ending)
    assert world.registry.marks == {
        "tidegate.outcome": str(ending),
        "tidegate.reason": result.reason,
        "tidegate.delivery": result.delivery,
    }
    if story == "wrong answers":
        # No user has met it, and the next wave has not begun.
        assert max(routes.weight for routes in world.fleets[HERE].proxy.swaps) == 0
        assert THERE not in "".join(world.said("started"))


async def test_a_healthy_version_reaches_every_region_step_by_step_and_becomes_champion(world: World) -> None:
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.DELIVERED, ExitCode.DELIVERED)
    assert world.stable_versions() == EVERYWHERE
    assert world.registry.champion == CHALLENGER
    assert world.registry.marks["tidegate.outcome"] == "delivered"
    assert world.ledger.outcome == "delivered"
    planned = [step.id for step in world.plan.steps]
    assert world.said("started") == ["delivery", *planned]
    assert world.said("done") == planned
    weights = [routes.weight for routes in world.fleets["us-east-1"].proxy.swaps]
    assert [weight for weight, _ in groupby(weights)] == [0, 10, 50, 0]
    names = {name for _, numbers in world.ledger.numbers for name in numbers}
    assert "eu-west-1/quality.canary_mean_score" in names
    assert "us-east-1/latency.ttft_p95_canary_seconds" in names


async def test_aliases_that_a_delivery_did_not_touch_stay_as_somebody_set_them(world: World) -> None:
    world.when("canary@eu-west-1/50", "started", lambda: setattr(world.registry, "champion", "7"))
    world.fleets["us-east-1"].refuse(CHALLENGER)
    assert (await world.deliver()).ending is Ending.FAILED
    assert world.registry.champion == "7"


async def test_a_bug_is_not_hidden_and_still_takes_every_region_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(world.chat, "tokenize", bug)
    with pytest.raises(ZeroDivisionError):
        await world.deliver()
    assert world.stable_versions() == NOWHERE
    assert world.ledger.outcome == "failed"


async def test_a_ledger_that_is_gone_keeps_no_region_on_a_bad_version(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.when("canary@us-east-1/50", "started", lambda: monkeypatch.setattr(world.ledger, "append", lost))
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.FAILED, ExitCode.OUTSIDE)
    assert "the store does not answer" in result.reason
    assert world.stable_versions() == NOWHERE
    told = [event.message for event in world.recorder.events if event.step == "undo@us-east-1"]
    assert "not in the ledger: the store does not answer" in told[-1]


async def test_a_champion_that_is_no_longer_warm_is_started_again_to_go_back_to(world: World) -> None:
    world.when("promote@eu-west-1", "done", lambda: world.fleets["eu-west-1"].kill(CHAMPION))
    world.fleets["us-east-1"].refuse(CHALLENGER)
    await world.deliver()
    assert world.stable_versions() == NOWHERE
    assert world.fleets["eu-west-1"].engines.running() == [CHAMPION]


@pytest.mark.parametrize(("breaks_off", "moves"), [(False, 1), (True, 2)])
async def test_aliases_are_moved_and_moved_back_by_the_names_of_the_spec(
    tmp_path: Path, *, breaks_off: bool, moves: int
) -> None:
    world = World(tmp_path, a_spec(model="model: {name: support-llm, to: live, previous: live-before}"))
    world.registry.breaks_off = breaks_off
    await world.deliver()
    assert world.registry.names == [ServingAliases(champion="live", previous="live-before")] * moves


async def test_regions_that_fail_together_are_one_reason(wave: World) -> None:
    for fleet in wave.fleets.values():
        fleet.refuse(CHALLENGER)
    result = await wave.deliver()
    assert result.ending is Ending.FAILED
    assert result.reason.count("died while it started") == 1


async def test_the_other_region_of_a_wave_does_not_go_on_alone(wave: World) -> None:
    wave.fleets["us-east-1"].refuse(CHALLENGER)
    await wave.deliver()
    assert not [step for step in wave.said("done") if step.startswith(("shadow@", "canary@", "promote@"))]
    assert wave.stable_versions() == {"eu-west-1": CHAMPION, "us-east-1": CHAMPION}


async def test_a_version_that_cannot_be_marked_is_taken_back_all_the_same(world: World) -> None:
    world.chat.scripts[CHALLENGER_URL] = lambda prompt: "wrong"
    world.registry.gone = True
    result = await world.deliver()
    assert result.ending is Ending.ROLLED_BACK
    assert world.ledger.outcome == "rolled-back"
    said = [event.message for event in world.recorder.events if event.step == "delivery"]
    assert "the version could not be marked: the registry is not there" in said


async def test_a_delivery_that_is_told_to_stop_before_its_first_step_changed_nothing(world: World) -> None:
    task = asyncio.create_task(world.deliver())
    world.when("delivery", "started", task.cancel)
    result = await task
    assert result.ending is Ending.INTERRUPTED
    assert all(fleet.engines.running() in ([], [CHAMPION]) for fleet in world.fleets.values())
    assert max((route.weight for fleet in world.fleets.values() for route in fleet.proxy.swaps), default=0) == 0
