"""What `tidegate status` says of deliveries and regions: `tests/golden/views/status.txt` has the lines.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/unit/cli/test_status_lines.py`; read the diff.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.golden import is_golden

from gates.model import GateOutcome, Verdict
from pipelines.events.state import DeliveryState, GateState, StepState, StepStatus, TimedVerdict
from pipelines.views.status import StatusReport
from registry.errors import StoreUnreachable
from registry.model import DeliverySummary
from rollouts.model import (
    CarrierHeartbeat,
    EngineSet,
    ForeignChange,
    ForeignObject,
    GuardRollback,
    RegionPhase,
    RegionState,
    Role,
)
from tidegate.cli.views.status import (
    carrier_line,
    history_lines,
    other_version_lines,
    region_lines,
    status_data,
    status_lines,
)
from tidegate.standing import read_records

GOLDEN = Path(__file__).parents[2] / "golden/views/status.txt"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_delivery(**changes: object) -> DeliverySummary:
    known: dict[str, object] = {
        "id": "0123456789abcdef", "name": "support-llm", "version": "3", "champion": "2", "started": NOON,
        "host": "here", "pid": 4711, "heartbeat": NOON,
    }  # fmt: skip
    return DeliverySummary.model_validate(known | changes)


def an_arm(role: Role, version: str, *, ready: bool = True) -> EngineSet:
    return EngineSet(role=role, version=version, digest="d", url="http://127.0.0.1:1", ready=ready)


def a_region(**changes: object) -> RegionState:
    known: dict[str, object] = {"region": "eu-west-1", "phase": RegionPhase.STEADY, "entry": "http://127.0.0.1:8080"}
    return RegionState.model_validate(known | changes)


def lines_of(delivery: StatusReport, *regions: RegionState) -> list[str]:
    return list(status_lines(delivery.model_copy(update={"regions": regions}), NOON))


OVER = {"outcome": "rolled-back", "reason": "gate latency: too slow"}
BY_STEPS = {"last_step": "bake@1", "patience_seconds": 900.0}
DELIVERIES = {
    "none yet": StatusReport(),
    "in a step": StatusReport(last=a_delivery(last_step="canary@eu-west-1/10"), alive=True),
    "at its start": StatusReport(last=a_delivery(), alive=True),
    "over": StatusReport(last=a_delivery(ended=NOON, **OVER)),
    "its process died": StatusReport(last=a_delivery(last_step="build")),
    "step by step": StatusReport(last=a_delivery(**BY_STEPS), alive=True),
    "step by step, and nobody comes": StatusReport(last=a_delivery(**BY_STEPS)),
}


def at_work(*, alive: bool) -> StatusReport:
    """Steps that run or wait, and a gate of one of them that cannot see."""

    def a_step(step: str, state: StepStatus, message: str) -> StepState:
        return StepState(id=step, stage=step.partition("@")[0], state=state, message=message)

    blind = Verdict(gate="latency", outcome=GateOutcome.ERROR, reason="Prometheus does not answer")
    steps = (
        a_step("build", StepStatus.DONE, "built"),
        a_step("canary@eu-west-1/10", StepStatus.RUNNING, "10 % of users"),
        a_step("canary@us-east-1/10", StepStatus.RUNNING, ""),
        a_step("promote@eu-west-1", StepStatus.WAITING, "for an approval by one of risk"),
        a_step("bake@1", StepStatus.WAITING, ""),
    )
    seen = (TimedVerdict(at=NOON, verdict=blind),)
    gates = tuple(GateState(name=blind.gate, step=step, history=seen) for step in ("build", "canary@eu-west-1/10"))
    return StatusReport(last=a_delivery(), alive=alive, story=DeliveryState(steps=steps, gates=gates))


STABLE, CANARY = an_arm(Role.STABLE, "2"), an_arm(Role.CANARY, "3")
DOWN = {"stable": an_arm(Role.STABLE, "2", ready=False), "problem": "stable (version 2) is down"}
THEIRS = ForeignObject(kind="Rollout", name="chat", namespace="serving", owner="managed by Helm")
UNKNOWN = {
    "problem": f"{THEIRS}; its 4 pods may serve",
    "foreign_objects": [THEIRS, THEIRS.model_copy(update={"kind": "Service"})],
}
TAKEN = "version 2 was rolled back here at 12:00:00 UTC: nothing was heard of ci-7 for 15m"
REGIONS = {
    "empty": a_region(phase=RegionPhase.EMPTY),
    "steady": a_region(stable=an_arm(Role.STABLE, "3"), previous=an_arm(Role.PREVIOUS, "2")),
    "trial": a_region(phase=RegionPhase.TRIAL, stable=STABLE, canary=CANARY, weight=10, mirror=100),
    "degraded": a_region(phase=RegionPhase.DEGRADED, **DOWN),
    "objects of others": a_region(phase=RegionPhase.UNKNOWN, **UNKNOWN),
    "it ended its trial": a_region(taken_away=TAKEN),
    "it ended its trial, and that is its problem": a_region(taken_away=TAKEN, problem=TAKEN),
}
REVERTED = ForeignChange(
    version="2", reason="somebody changed Rollout chat: argocd-controller at 12:00:00 UTC asks for version 2"
)
OTHERS: dict[str, tuple[str, ForeignChange | None, bool, str | None]] = {
    "what the registry says": ("3", None, False, "3"),
    "another version": ("2", None, False, "3"),
    "another version, and who asked for it": ("2", REVERTED, False, "3"),
    "what is asked for and does not serve yet": ("3", REVERTED, False, "3"),
    "anyone who applied the champion by hand took nothing away": ("2", REVERTED, False, "2"),
    "while a delivery is under way: its version": ("3", None, True, "2"),
    "while a delivery is under way: the champion still": ("2", None, True, "2"),
    "while a delivery is under way: neither": ("2", REVERTED, True, "1"),
    "the registry does not say": ("2", None, False, None),
}


def a_report(region: RegionState, *, alive: bool = False, champion: str | None = "3") -> StatusReport:
    return StatusReport(last=a_delivery(), alive=alive, regions=[region], in_production=champion)


def scenes() -> Iterator[tuple[str, Iterable[str]]]:
    for name, delivery in DELIVERIES.items():
        yield f"a delivery: {name}", lines_of(delivery)
    away = "https://10.0.0.1:6443 cannot be reached"
    yield "regions that cannot be seen", lines_of(StatusReport(silent={"a": away, "b": "no context b", "c": away}))
    yield "a delivery: its steps while somebody carries it", lines_of(at_work(alive=True))
    yield "a delivery: its steps once it died", lines_of(at_work(alive=False))
    over = a_delivery(ended=NOON + timedelta(minutes=7), **OVER)
    running = a_delivery(id="fedcba9876543210", version="4", last_step="bake@1", started=NOON + timedelta(days=1))
    dead = a_delivery(id="89abcdef01234567", version="2", on_trial="2-5ac3f1d2", started=NOON - timedelta(days=1))
    past = [(running, True), (over, False), (dead, False)]
    yield "the last deliveries", history_lines(past)
    for name, region in REGIONS.items():
        yield f"a region: {name}", region_lines(region)
    for silent in (4, 120, 1000, None):
        heard = None if silent is None else NOON - timedelta(seconds=silent)
        carried = CarrierHeartbeat(who="ci-7 (process 4711)", heard=heard, unattended_seconds=900.0)
        yield f"its carrier, silent for {silent} s", [carrier_line("eu-west-1", carried, NOON)]
    for name, (stable, foreign, alive, champion) in OTHERS.items():
        region = a_region(stable=an_arm(Role.STABLE, stable), foreign_change=foreign)
        yield f"it serves: {name}", other_version_lines(region, a_report(region, alive=alive, champion=champion))


def test_status_says_it_like_this() -> None:
    told = "".join("".join(f"{line}\n" for line in (f"# {title}", *lines)) for title, lines in scenes())
    is_golden(told, GOLDEN)


SERVES = a_region(stable=STABLE)


@pytest.mark.parametrize(
    ("regions", "silent", "code"),
    [
        ([SERVES], {}, 0),
        ([SERVES, a_region(stable=STABLE, phase=RegionPhase.DEGRADED, problem="one engine is missing")], {}, 0),
        ([SERVES, REGIONS["degraded"]], {}, 4),
        ([SERVES, REGIONS["empty"]], {}, 4),
        ([SERVES], {"us-east-1": "cannot be reached"}, 4),
        ([], {}, 4),
    ],
)
def test_the_exit_code_says_whether_every_region_was_seen_and_serves(
    regions: list[RegionState], silent: dict[str, str], code: int
) -> None:
    assert StatusReport(regions=regions, silent=silent).exit_code == code


def test_a_store_that_is_away_is_said_and_hides_nothing_else(tmp_path: Path) -> None:
    class Away:
        def deliveries(self, model: str, *, last: int) -> Any:
            raise StoreUnreachable("MLflow store http://mlflow: no answer")

    (tmp_path / "0f3c.jsonl").write_text("{}\n{}\n")
    away: Any = Away()
    records = read_records(away, "support-llm", tmp_path)
    assert (records.last, records.unreadable) == (None, "MLflow store http://mlflow: no answer")
    assert lines_of(records)[1] == "2 events are not yet written: MLflow has not taken them"


def test_the_data_name_what_serves_by_the_registry() -> None:
    assert status_data(a_report(SERVES, champion="3"))["in_production"] == "3"


@pytest.mark.parametrize("recorded", [False, True], ids=["nobody recorded it", "the delivery's ending tells it"])
def test_what_a_guard_rolled_back_is_told_once(recorded: bool) -> None:
    rescue = GuardRollback(version="3", at=NOON, since=NOON - timedelta(minutes=15), who="ci-7")
    report = a_report(a_region(unattended=rescue))
    if recorded:
        last = a_delivery(outcome="interrupted", reason=f"eu-west-1: {rescue}")
        report = report.model_copy(update={"last": last})
    assert "\n".join(status_lines(report, NOON)).count(str(rescue)) == 1
