"""What must not stay dead is started again, patiently; what nobody waits for any more is given up."""

from __future__ import annotations

import asyncio

import pytest

from rollouts.local.region import RestartSupervisor, RunningEngine
from rollouts.model import Engine
from tidegate.testing import FakeClock, FakeEngine, FakeEngines, an_engine


class SlowEngines(FakeEngines):
    """Engines that start only when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def start(self, engine: Engine, *, port: int | None = None) -> FakeEngine:
        await self.gate.wait()
        return await super().start(engine, port=port)


class Ward:
    """Engines of which one that is wanted has died, and what looks after them."""

    def __init__(self, engines: FakeEngines) -> None:
        self.clock = FakeClock()
        self.engines = engines
        self.supervisor = RestartSupervisor(engines, self.clock)
        self.dead = FakeEngine(an_engine("6"), 8123)
        self.dead.alive = False
        self.running: dict[str, RunningEngine] = {"6": self.dead}
        self.wanted = ["6"]

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.supervisor.reconcile(self.running, self.wanted)
            await asyncio.sleep(0)


@pytest.fixture
def ward() -> Ward:
    return Ward(FakeEngines())


async def test_an_effort_for_what_was_replaced_meanwhile_is_given_up() -> None:
    slow = SlowEngines()
    ward = Ward(slow)
    await ward.look(2)
    other = ward.running["6"] = FakeEngine(an_engine("6"), 8001)
    await ward.look(2)
    slow.gate.set()
    await ward.look(3)
    assert ward.running["6"] is other
    assert slow.running() == []


async def test_one_that_came_up_for_nobody_is_stopped(ward: Ward) -> None:
    await ward.look(1)
    ward.wanted = ["7"]
    await ward.look(2)
    assert ward.engines.running() == []


async def test_a_host_that_stops_starts_nothing_any_more() -> None:
    slow = SlowEngines()
    ward = Ward(slow)
    await ward.look(2)
    await ward.supervisor.stop()
    slow.gate.set()
    await asyncio.sleep(0)
    assert slow.started == []
