"""Users before records: on the way back every region is asked first, whatever became of the ledger and the displays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event as Signal
from typing import Any

import pytest
from fakes.clusters.world import ClusterWorld, demo_on_clusters
from fakes.delivery.ledger import AwayLedger, FakeLedger, OffLoop
from fakes.delivery.world import CHALLENGER, CHAMPION, World, a_spec

from pipelines.events.journal import Journal
from pipelines.events.listeners import QueuedListener
from pipelines.events.writer import Spool, WriterLimits, write_leftovers
from pipelines.model import Ending, Result
from pipelines.run.context import Context
from pipelines.run.engine import deliver
from registry.model import DeliverySummary, Event
from tidegate.core.errors import ExitCode

REGIONS = ("eu-west-1", "us-east-1")
TOGETHER = f"regions: {{waves: [[{', '.join(REGIONS)}]], bake: 10s}}"
IMPATIENT = WriterLimits(call=0.05, pauses=(0.001,))
"""Of calls that hang, which only real time can tell."""


class Order:
    """What left the process, in its order; ledger and regions write it."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self.asked_at: dict[str, float] = {}
        self.on_asked: Callable[[], None] = lambda: None

    def rollback(self, region: str, at: float) -> None:
        self.left.append(f"rollback@{region}")
        self.asked_at.setdefault(region, at)
        if len(self.asked_at) == len(REGIONS):
            self.on_asked()


class Told:
    """A `Fleet` that notes when it is asked to go back."""

    def __init__(self, fleet: Any, order: Order, clock: Any) -> None:
        self._fleet, self._order, self._clock = fleet, order, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    async def rollback(self, to: str) -> Any:
        self._order.rollback(self._fleet.region, self._clock.monotonic())
        return await self._fleet.rollback(to)


class Scene:
    """Two regions at 50 % of their users; then the ledger changes, and a gate sees that the canary fails."""

    def __init__(self, world: World | ClusterWorld, folder: Path) -> None:
        self.world, self.order = world, Order()
        self.clock = world.clock if isinstance(world, World) else world.time
        self.ledger = AwayLedger(FakeLedger(self.clock))
        self.unwritten = folder / "unwritten"
        self.limits = WriterLimits(pauses=(0.001,))
        self.journal: Journal
        self.at_verdict: Callable[[], None] = lambda: None
        self._on_canary = 0
        append = self.ledger.ledger.append

        def note(event: Event) -> None:
            append(event)
            self.order.left.append(f"{event.step} {event.kind}")

        self.ledger.ledger.append = note  # type: ignore[method-assign]  # an order of both is what is asked here

    def context(self) -> Context:
        context = self.world.context()
        self.journal = Journal(
            OffLoop(self.ledger),  # type: ignore[arg-type]
            self.clock,
            [self.world.recorder, self],
            registry=context.registry,
            spool=Spool(self.unwritten, "1"),
            limits=self.limits,
        )
        fleets = {name: Told(fleet, self.order, self.clock) for name, fleet in context.fleets.items()}
        return replace(context, journal=self.journal, fleets=fleets)

    def on_event(self, event: Event) -> None:
        if event.kind == "traffic" and event.step.startswith("canary@") and event.step.endswith("/50"):
            self._on_canary += 1
            if self._on_canary == len(REGIONS):
                self.world.evidence.serves("canary", CHALLENGER, failed=0.5)
                self.at_verdict()

    async def deliver(self) -> Result:
        result = await deliver(self.context())
        self.journal.end()
        return result

    @property
    def verdict(self) -> Event:
        return next(event for event in self.world.recorder.events if event.data.get("outcome") == "fail")

    def next_command(self) -> list[str]:
        """Another process, when the store is back; what it complains of."""
        said: list[str] = []
        write_leftovers(self.unwritten, self, self.world.registry, said.append)
        return said

    def summary(self, delivery: str) -> DeliverySummary:
        return self.ledger.ledger.summary

    def join(self, delivery: str, *, carries: bool = True) -> FakeLedger:
        assert not carries, "a dead delivery shows no sign of life"
        return self.ledger.ledger


EVERYWHERE = pytest.mark.parametrize("scene", ["this machine", "clusters"], indirect=True)


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """On this machine, unless a test is told on both."""
    if getattr(request, "param", "") == "clusters":
        world: World | ClusterWorld = ClusterWorld(tmp_path, demo_on_clusters(REGIONS))
    else:
        world = World(tmp_path, a_spec(regions=TOGETHER, shadow=""))
    scene = Scene(world, tmp_path)
    yield scene
    scene.ledger.come_back()


def is_rolled_back(scene: Scene, result: Result) -> None:
    assert (result.ending, result.exit_code) == (Ending.ROLLED_BACK, ExitCode.ROLLED_BACK)
    assert ": gate errors: canary failed" in result.reason
    assert scene.world.stable_versions() == dict.fromkeys(REGIONS, CHAMPION)


def regions_went_first(scene: Scene) -> None:
    """All of them were asked, and nothing of what came of the verdict was in the ledger before."""
    left = scene.order.left
    asked = [left.index(f"rollback@{region}") for region in REGIONS]
    of_the_verdict = [left.index(said) for said in left if said.endswith((" failed", " closed")) or "undo@" in said]
    assert all(place > max(asked) for place in of_the_verdict), left
    if isinstance(scene.world, ClusterWorld):
        at = (scene.verdict.at - scene.clock.now()).total_seconds() + scene.clock.monotonic()
        assert max(scene.order.asked_at.values()) - at <= 0.2


def all_is_recorded_once(scene: Scene) -> None:
    """Everything that was shown, but what is for displays only, and in the order of its time."""
    kept = [event.model_dump_json() for event in scene.ledger.ledger.events]
    assert len(set(kept)) == len(kept)
    turns = ("started", "traffic", "done", "failed", "closed")
    shown = [event for event in scene.world.recorder.events if event.kind in turns]
    assert sorted(event.model_dump_json() for event in shown) == sorted(
        event.model_dump_json() for event in scene.ledger.ledger.events if event.kind in turns
    )
    assert scene.ledger.ledger.events[-1].kind == "closed"
    assert scene.ledger.ledger.outcome == "rolled-back"
    assert scene.world.registry.marks["tidegate.outcome"] == "rolled-back"


@EVERYWHERE
async def test_with_the_ledger_there_regions_go_before_its_records(scene: Scene) -> None:
    result = await scene.deliver()
    is_rolled_back(scene, result)
    regions_went_first(scene)
    all_is_recorded_once(scene)
    assert list(scene.unwritten.iterdir()) == []


@EVERYWHERE
async def test_a_ledger_that_hangs_changes_nothing_but_its_own_records(scene: Scene) -> None:
    scene.limits, scene.at_verdict = IMPATIENT, scene.ledger.hang
    is_rolled_back(scene, await scene.deliver())
    regions_went_first(scene)
    assert len(list(scene.unwritten.iterdir())) == 1
    assert scene.ledger.ledger.outcome is None


async def test_a_ledger_that_is_gone_gets_its_records_from_the_next_command(scene: Scene) -> None:
    scene.at_verdict = scene.ledger.go_away
    is_rolled_back(scene, await scene.deliver())
    regions_went_first(scene)
    assert scene.ledger.ledger.outcome is None
    told = [event.message for event in scene.world.recorder.events if event.step == "delivery"]
    assert any("the next tidegate command writes them" in message for message in told)
    assert scene.next_command() == []
    all_is_recorded_once(scene)
    assert list(scene.unwritten.iterdir()) == []
    before = list(scene.ledger.ledger.events)
    assert scene.next_command() == []
    assert scene.ledger.ledger.events == before


async def test_a_ledger_that_comes_back_gets_its_records_from_the_same_process(scene: Scene) -> None:
    scene.limits = WriterLimits(pauses=(0.001,), end=float("inf"))
    scene.at_verdict = lambda: scene.ledger.go_away(calls=20)
    is_rolled_back(scene, await scene.deliver())
    assert scene.ledger.refused == 20
    all_is_recorded_once(scene)
    assert list(scene.unwritten.iterdir()) == []


async def test_blocked_threads_of_the_pool_hold_nobody(scene: Scene) -> None:
    blocked, loop = Signal(), asyncio.get_running_loop()

    def block() -> None:
        for _ in range(100):
            loop.run_in_executor(None, blocked.wait)

    scene.at_verdict = block
    try:
        is_rolled_back(scene, await scene.deliver())
    finally:
        blocked.set()


async def test_a_display_that_takes_nothing_more_holds_nobody(scene: Scene) -> None:
    blocked = Signal()

    class Terminal:
        def on_event(self, event: Event) -> None:
            blocked.wait()

    with QueuedListener([Terminal().on_event], patience_seconds=0.01) as terminal:
        context = scene.context()
        context.journal._listeners += (terminal,)  # a listener more than the scene has
        result = await deliver(context)
        context.journal.end()
    is_rolled_back(scene, result)
    blocked.set()


async def test_a_step_that_does_not_end_when_it_is_told_to_holds_no_region(scene: Scene) -> None:
    asked = asyncio.Event()
    scene.order.on_asked = asked.set
    context = scene.context()
    slow = context.fleets[REGIONS[1]]
    observe = slow.observe

    async def observed() -> Any:
        state = await observe()
        if scene._on_canary == len(REGIONS) and not asked.is_set():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                # What it holds must be put down first, and that takes long.
                await asked.wait()
                raise
        return state

    slow.observe = observed  # type: ignore[method-assign]
    result = await deliver(context)
    context.journal.end()
    is_rolled_back(scene, result)
    regions_went_first(scene)


async def test_no_matter_who_stops_a_delivery_waits_for_no_ledger_either(scene: Scene) -> None:
    running: list[asyncio.Task[Result]] = []

    def stop() -> None:
        scene.ledger.go_away()
        running[0].cancel()

    scene.at_verdict = stop
    running.append(asyncio.create_task(scene.deliver()))
    result = await running[0]
    assert result.ending is Ending.INTERRUPTED
    assert set(scene.order.asked_at) == set(REGIONS)
    assert scene.world.stable_versions() == dict.fromkeys(REGIONS, CHAMPION)
    assert scene.next_command() == []
    assert scene.ledger.ledger.outcome == "interrupted"
