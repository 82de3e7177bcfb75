"""A stage ends when its gates say so, when its time is over, or when there is nothing left to watch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHAMPION, World, a_spec

from gates.model import GateOutcome, Verdict
from pipelines.errors import Stopped
from pipelines.model import Ending, PlanStep, StageName
from pipelines.run.evidence import LOOK_SECONDS, watch
from tidegate.core.errors import ExitCode, OutsideError
from tidegate.testing import an_engine

BLIND_SECONDS = 20.0

STEP = PlanStep(stage=StageName.CANARY, wave=1, region="eu-west-1", weight=10)


class Gate:
    """Says what a test wrote down, look by look, and the last of it for ever."""

    def __init__(self, *script: GateOutcome | OutsideError, name: str = "latency") -> None:
        self._script = list(script)
        self._name = name
        self.finals: list[bool] = []

    async def __call__(self, final: bool) -> Sequence[Verdict]:
        self.finals.append(final)
        said = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(said, OutsideError):
            raise said
        return [Verdict(gate=self._name, outcome=said, reason=f"it is {said}")]


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """A canary with a tenth of the users of eu-west-1."""
    patience = f"patience: {{metrics: {BLIND_SECONDS:g}s}}"
    world = World(tmp_path, a_spec(traffic=f"traffic: {{requests_per_second: 200}}\n{patience}"))
    fleet = world.fleets["eu-west-1"]
    await fleet.deploy(an_engine(CHAMPION))
    await fleet.deploy(an_engine(CHALLENGER))
    await fleet.shift(10)
    return world


async def stopped(world: World, gate: Gate, at_least: float = 0) -> Stopped:
    with pytest.raises(Stopped) as caught:
        await watch(world.context(), STEP, gate, at_least=at_least, within=60)
    return caught.value


async def test_a_stage_lasts_as_long_as_it_must_even_when_its_gates_pass_at_once(world: World) -> None:
    gate = Gate(GateOutcome.PASS)
    await watch(world.context(), STEP, gate, at_least=30, within=60)
    assert world.clock.elapsed == 30
    assert len(gate.finals) == 30 / LOOK_SECONDS + 1


async def test_a_pass_that_turns_into_a_fail_before_the_stage_may_end_is_a_fail(world: World) -> None:
    gate = Gate(GateOutcome.PASS, GateOutcome.PASS, GateOutcome.FAIL)
    assert (await stopped(world, gate, at_least=30)).ending is Ending.ROLLED_BACK


async def test_only_the_gates_that_decided_are_named(world: World) -> None:
    async def three(final: bool) -> Sequence[Verdict]:
        outcomes = {"latency": GateOutcome.FAIL, "errors": GateOutcome.PASS, "agreement": GateOutcome.FAIL}
        return [Verdict(gate=name, outcome=outcome, reason="bad") for name, outcome in outcomes.items()]

    with pytest.raises(Stopped) as caught:
        await watch(world.context(), STEP, three, at_least=0, within=60)
    assert caught.value.reason == "gate latency: bad; gate agreement: bad"


async def test_at_the_end_of_its_time_a_gate_is_asked_for_the_last_time_and_told_so(world: World) -> None:
    gate = Gate(*[GateOutcome.RUNNING] * 30, GateOutcome.INCONCLUSIVE)
    stop = await stopped(world, gate)
    assert stop.ending is Ending.INCONCLUSIVE
    assert gate.finals == [False] * 30 + [True]
    assert world.clock.elapsed == 60


async def test_a_pass_in_the_last_look_is_a_pass(world: World) -> None:
    gate = Gate(*[GateOutcome.RUNNING] * 30, GateOutcome.PASS)
    await watch(world.context(), STEP, gate, at_least=0, within=60)
    assert gate.finals[-1] is True


async def test_evidence_that_cannot_be_read_for_long_ends_the_delivery_as_something_outside(world: World) -> None:
    stop = await stopped(world, Gate(OutsideError("Prometheus is not there")))
    assert stop.ending is Ending.FAILED
    assert stop.reason == "gate evidence: Prometheus is not there"
    assert world.clock.elapsed == BLIND_SECONDS


async def test_evidence_that_comes_back_starts_the_patience_again(world: World) -> None:
    gone = OutsideError("Prometheus is not there")
    almost = [gone] * (int(BLIND_SECONDS / LOOK_SECONDS) - 1)
    await watch(world.context(), STEP, Gate(*almost, GateOutcome.RUNNING, *almost, GateOutcome.PASS), within=60)
    assert world.clock.elapsed > BLIND_SECONDS


async def test_a_failed_gate_stops_at_once(world: World) -> None:
    await stopped(world, Gate(GateOutcome.RUNNING, GateOutcome.FAIL))
    assert world.clock.elapsed == LOOK_SECONDS


async def test_no_gates_are_no_pass(world: World) -> None:
    async def nothing(final: bool) -> Sequence[Verdict]:
        return []

    with pytest.raises(Stopped) as caught:
        await watch(world.context(), STEP, nothing, at_least=0, within=10)
    assert caught.value.ending is Ending.INCONCLUSIVE


async def test_a_weight_that_somebody_else_set_makes_the_evidence_worthless(world: World) -> None:
    await world.fleets["eu-west-1"].shift(90)
    stop = await stopped(world, Gate(GateOutcome.PASS))
    assert (stop.ending, stop.exit_code) == (Ending.INTERRUPTED, ExitCode.OUTSIDE)
    assert stop.reason == "somebody else set the weight to 90 %; this delivery set 10 %"
