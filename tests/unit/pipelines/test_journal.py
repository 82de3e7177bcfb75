"""What a delivery says is durable first and shown second; the ledger is spared what it knows already."""

from __future__ import annotations

import pytest
from fakes.delivery.ledger import FakeLedger
from fakes.delivery.world import Recorder

from gates.model import GateOutcome, Verdict
from pipelines.events.journal import RUNNING_INTERVAL_SECONDS, Journal
from pipelines.events.payloads import StepFailure, VerdictPayload
from pipelines.model import Ending, PlanStep, StageName
from registry.model import Event, EventKind
from tidegate.core.errors import ExitCode, OutsideError
from tidegate.testing import START, FakeClock

STEP = PlanStep(stage=StageName.CANARY, wave=1, region="eu-west-1", weight=10)


class Desk:
    """A journal between a ledger and a display."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ledger = FakeLedger(self.clock)
        self.display = Recorder()
        self.journal = Journal(self.ledger, self.clock, [self.display])

    def judge(self, outcome: GateOutcome, *, gate: str = "latency", step: PlanStep = STEP, p95: float = 0.1) -> None:
        self.journal.verdict(step, Verdict(gate=gate, outcome=outcome, reason="so", numbers={"p95_seconds": p95}))

    async def written(self) -> None:
        """Everything that was said so far is."""
        await self.journal.written()

    def in_ledger(self) -> list[tuple[str, str]]:
        return [(event.data["gate"], event.data["outcome"]) for event in self.ledger.events]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_an_event_is_in_the_ledger_before_any_display_sees_it(desk: Desk) -> None:
    seen = []
    desk.display.reactions["build", "started"] = lambda: seen.append(len(desk.ledger.events))
    await desk.journal.say("build", EventKind.STARTED)
    assert seen == [1]


async def test_an_event_that_the_ledger_refuses_is_shown_to_nobody(desk: Desk) -> None:
    desk.ledger.bury()
    with pytest.raises(OutsideError):
        await desk.journal.say("build", EventKind.STARTED)
    assert desk.display.events == []


async def test_an_unchanged_running_verdict_is_repeated_in_the_ledger_every_ten_seconds_only(desk: Desk) -> None:
    for _ in range(11):
        desk.judge(GateOutcome.RUNNING)
        await desk.clock.sleep(2)
    assert desk.clock.elapsed == 2 * RUNNING_INTERVAL_SECONDS + 2
    await desk.written()
    assert desk.in_ledger() == [("latency", "running")] * 3
    assert len(desk.display.events) == 11


@pytest.mark.parametrize(("end", "kind"), [(EventKind.DONE, "done"), (StepFailure(), "failed")])
async def test_what_a_gate_said_last_is_in_the_ledger_before_its_step_ends(
    desk: Desk, end: EventKind | StepFailure, kind: str
) -> None:
    other = STEP.model_copy(update={"region": "us-east-1"})
    for p95 in (0.1, 0.2, 0.3):
        desk.judge(GateOutcome.PASS, p95=p95)
        desk.judge(GateOutcome.PASS, p95=p95, step=other)
    desk.journal.tell(STEP.id, end)
    await desk.written()
    said = [(event.step, event.kind, event.data.get("numbers")) for event in desk.ledger.events]
    assert said == [
        (STEP.id, "verdict", {"p95_seconds": 0.1}),
        (other.id, "verdict", {"p95_seconds": 0.1}),
        (STEP.id, "verdict", {"p95_seconds": 0.3}),
        (STEP.id, kind, None),
    ]


async def test_a_verdict_that_changes_is_in_the_ledger_at_once(desk: Desk) -> None:
    desk.judge(GateOutcome.RUNNING)
    desk.judge(GateOutcome.PASS)
    desk.judge(GateOutcome.FAIL)
    await desk.written()
    assert desk.in_ledger() == [("latency", "running"), ("latency", "pass"), ("latency", "fail")]


async def test_gates_and_regions_do_not_silence_each_other(desk: Desk) -> None:
    bake = PlanStep(stage=StageName.BAKE, wave=1)
    for region in ("eu-west-1", "us-east-1"):
        for gate in ("health", "errors"):
            desk.judge(GateOutcome.PASS, gate=gate, step=bake.model_copy(update={"region": region}))
    await desk.written()
    said = [VerdictPayload.model_validate(event.data) for event in desk.ledger.events]
    assert [(verdict.region, verdict.gate) for verdict in said] == [
        ("eu-west-1", "health"), ("eu-west-1", "errors"), ("us-east-1", "health"), ("us-east-1", "errors"),
    ]  # fmt: skip


async def test_numbers_of_a_verdict_become_series_of_their_region_and_gate(desk: Desk) -> None:
    desk.judge(GateOutcome.RUNNING, p95=0.25)
    desk.judge(GateOutcome.RUNNING, p95=0.3)
    await desk.written()
    assert desk.ledger.numbers == [(START, {"eu-west-1/latency.p95_seconds": 0.25})]
    desk.judge(GateOutcome.PASS, step=PlanStep(stage=StageName.BUILD))
    await desk.written()
    assert desk.ledger.numbers[-1] == (START, {"latency.p95_seconds": 0.1})


async def test_progress_is_for_displays_only(desk: Desk) -> None:
    desk.journal.progress(STEP, "answers", 3, 24)
    await desk.written()
    assert desk.ledger.events == []
    assert desk.display.events == [
        Event(at=START, step=STEP.id, kind="evidence", message="answers", data={"done": 3, "total": 24})
    ]


async def test_what_was_measured_next_to_a_verdict_is_for_displays_and_not_for_the_ledger(desk: Desk) -> None:
    verdict = Verdict(gate="drift", outcome=GateOutcome.RUNNING, reason="so", auxiliary={"canary_refusal_share": 0.1})
    desk.journal.verdict(STEP, verdict)
    assert VerdictPayload.model_validate(desk.display.events[0].data).auxiliary == {"canary_refusal_share": 0.1}
    await desk.written()
    assert "auxiliary" not in desk.ledger.events[0].data


async def test_a_sign_of_life_after_its_own_end_says_nothing(desk: Desk) -> None:
    await desk.journal.closed(Ending.FAILED, "no engine", ExitCode.OUTSIDE)
    await desk.journal.beat()


async def test_a_sign_of_life_tells_that_somebody_else_ended_the_delivery(desk: Desk) -> None:
    desk.ledger.bury()
    with pytest.raises(OutsideError):
        await desk.journal.beat()
