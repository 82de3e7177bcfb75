"""A program that knows only `import tidegate` delivers, rolls back, resumes and looks."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from alike import long
from fakes.services.embedded_mlflow import write_embedded_mlflow

import tidegate
from pipelines.ports import Fleet
from tidegate.testing import FakeClock, FleetContract, MakeEngine, an_engine, write_tiny_model

pytestmark = pytest.mark.slow(reason="deliveries by a fleet host with engines of its own")

ROOT = Path(__file__).parents[3]


def loaded(path: Path) -> ModuleType:
    found = spec_from_file_location(path.stem, path)
    assert found
    assert found.loader
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


EXAMPLE = loaded(ROOT / "examples/own_fleet/deliver.py")
SCRIPT = Path(__file__).with_name("dying_delivery.py")
DYING = loaded(SCRIPT)


class TestFleetOfTheExample(FleetContract):
    @pytest.fixture
    def fleet(self) -> Fleet:
        fleet: Fleet = EXAMPLE.DictFleet("eu-west-1")
        return fleet

    @pytest.fixture
    def engine(self) -> MakeEngine:
        return an_engine

    @pytest.fixture
    def broken(self) -> MakeEngine:
        pytest.skip("it starts every engine")


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One embedded MLflow for all tests here."""
    state = tmp_path_factory.mktemp("machine") / ".tidegate"
    write_embedded_mlflow(state)
    return state


@pytest.fixture
def spec(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> tidegate.Delivery:
    """The example's spec, of a model of this test's own, whose champion and challenger are registered."""
    monkeypatch.setenv("TIDEGATE_STATE", str(state))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    name = request.node.name.replace("_", "-")
    text = (ROOT / "examples/own_fleet/delivery.yaml").read_text()
    path = tmp_path / "delivery.yaml"
    path.write_text(text.replace("model: {name: support-llm", f"model: {{name: {name}"))
    for seed, alias in enumerate(("champion", "challenger")):
        tidegate.register(name, write_tiny_model(tmp_path / alias, seed=seed), alias=alias)
    return tidegate.load_spec(path)


async def served(fleets: dict[str, tidegate.Fleet]) -> dict[str, str | None]:
    states = {region: await fleet.observe() for region, fleet in fleets.items()}
    return {region: state.stable and state.stable.version for region, state in states.items()}


class WaitingClock(FakeClock):
    """Time that begins to pass when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = asyncio.Event()
        self.goes = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.waits.set()
        await self.goes.wait()
        await super().sleep(seconds)


async def test_a_version_is_delivered(spec: tidegate.Delivery, tmp_path: Path) -> None:
    heard: list[tidegate.DeliveryEvent] = []
    around = DYING.surroundings(spec, tmp_path)
    plan = tidegate.plan(spec)
    async with tidegate.connect(spec, **around) as backends:
        result = await tidegate.deliver(backends, listeners=[heard.append])
        found = await tidegate.status(backends)
    assert result.ending is tidegate.Ending.DELIVERED
    assert await served(around["fleets"]) == {"eu-west-1": "2", "us-east-1": "2"}
    assert (heard[0].kind, heard[-1].kind) == ("started", "closed")
    assert [event.step for event in heard if event.kind == "done"] == [step.id for step in plan.steps]
    assert found.last
    assert (found.last.id, found.last.outcome) == (result.delivery, "delivered")
    assert [each.phase for each in found.regions] == [tidegate.RegionPhase.STEADY] * 2
    assert found.exit_code is tidegate.ExitCode.DELIVERED
    assert tidegate.plan(spec, version="1").champion.version == "2"


@pytest.mark.long
async def test_a_delivery_whose_process_died_is_resumed(spec: tidegate.Delivery, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    died = subprocess.run([sys.executable, SCRIPT, spec.path], cwd=ROOT, env=environment, check=False)
    assert died.returncode == 9
    around = DYING.surroundings(spec, tmp_path)
    around["clock"].elapsed = 3600.0
    assert await served(around["fleets"]) == {"eu-west-1": "2", "us-east-1": "1"}
    heard: list[tidegate.DeliveryEvent] = []
    async with tidegate.connect(spec, **around) as backends:
        left = await tidegate.status(backends)
        assert left.last
        assert not left.alive
        result = await tidegate.resume(left.last.id, backends, listeners=[heard.append])
    assert (result.delivery, result.reason) == (left.last.id, "version 2 serves eu-west-1, us-east-1")
    assert result.ending is tidegate.Ending.DELIVERED
    assert "promote@eu-west-1" not in {event.step for event in heard}
    assert await served(around["fleets"]) == {"eu-west-1": "2", "us-east-1": "2"}


@pytest.fixture
def signals() -> Any:
    """SIGTERM to this process is a failure."""
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    yield heard
    signal.signal(signal.SIGTERM, before)


@asynccontextmanager
async def in_mid_delivery(
    spec: tidegate.Delivery, folder: Path
) -> AsyncIterator[tuple[tidegate.Connection, asyncio.Task[tidegate.Result]]]:
    """A delivery that has come to its first wait, and goes on."""
    clock = WaitingClock()
    around = DYING.surroundings(spec, folder) | {"clock": clock}
    async with tidegate.connect(spec, **around) as backends:
        delivering = asyncio.create_task(tidegate.deliver(backends))
        await clock.waits.wait()
        clock.goes.set()
        yield backends, delivering


async def test_a_rollback_ends_the_delivery_of_its_own_program_without_a_signal(
    spec: tidegate.Delivery, tmp_path: Path, signals: list[int]
) -> None:
    async with in_mid_delivery(spec, tmp_path) as (backends, delivering):
        back = await tidegate.rollback(backends)
        result = await delivering
        again = await tidegate.rollback(backends)
    assert (result.ending, signals) == (tidegate.Ending.INTERRUPTED, [])
    assert (back.versions, back.wrong) == ({"eu-west-1": "1", "us-east-1": "1"}, [])
    assert again.versions == back.versions


async def test_a_cancelled_delivery_takes_every_region_back_and_then_is_cancelled(
    spec: tidegate.Delivery, tmp_path: Path
) -> None:
    async with in_mid_delivery(spec, tmp_path) as (backends, delivering):
        delivering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await delivering
        found = await tidegate.status(backends)
    assert found.last
    assert found.last.outcome == "interrupted"
    assert [(each.stable and each.stable.version, each.canary) for each in found.regions] == [("1", None)] * 2


async def test_what_a_connection_lacks_is_said_before_anything_is_done(spec: tidegate.Delivery, tmp_path: Path) -> None:
    around = DYING.surroundings(spec, tmp_path)
    with pytest.raises(tidegate.UsageError, match="need `evidence`"):
        async with tidegate.connect(spec, fleets=around["fleets"]):
            pass
    around["fleets"].pop("us-east-1")
    with pytest.raises(tidegate.UsageError, match="no fleet for region us-east-1; there are: eu-west-1"):
        async with tidegate.connect(spec, **around):
            pass


@pytest.mark.parametrize(("words", "code"), [([], 0), long(["slow"], 1)])
def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "TIDEGATE_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["deliver.py", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples/own_fleet/deliver.py"), run_name="__main__")
    last = capsys.readouterr().out.splitlines()[-1]
    assert ended.value.code == code
    assert last.startswith(
        "rolled-back: canary@eu-west-1/10: gate latency:" if words else "delivered: version 2 serves"
    )
