"""What `tidegate status` says of a delivery and of a region, in one line each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gates.model import GateOutcome, Verdict
from pipelines.events.state import DeliveryState, GateState, StepState, StepStatus, TimedVerdict
from pipelines.views.status import DeliveryStatus, FleetSnapshot, PastDelivery, StatusReport
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
from tidegate.standing import read_status

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


def lines_of(delivery: DeliveryStatus) -> list[str]:
    """What is said of a delivery where no fleet is."""
    fleet = FleetSnapshot(regions=[], silent={}, carried={})
    return list(status_lines(StatusReport(delivery, fleet, None, "sqlite:///mlflow.db"), NOON))


@pytest.mark.parametrize(
    ("last", "alive", "line"),
    [
        (None, False, "no delivery yet"),
        (
            a_delivery(last_step="canary@eu-west-1/10"),
            True,
            "delivery 01234567 of version 3: at canary@eu-west-1/10, process 4711 on here",
        ),
        (a_delivery(), True, "delivery 01234567 of version 3: at its start, process 4711 on here"),
        (
            a_delivery(outcome="rolled-back", reason="gate latency: too slow", ended=NOON),
            False,
            "delivery 01234567 of version 3: rolled-back: gate latency: too slow",
        ),
        (
            a_delivery(last_step="build"),
            False,
            "delivery 01234567 of version 3: died at build; process 4711 on here was last heard of at "
            f"{a_delivery().heartbeat:%F %T} UTC; "
            f"`tidegate resume {a_delivery().id}` carries it on, the next `tidegate deliver` closes it and "
            f"starts again",
        ),
        (
            a_delivery(last_step="bake@1", patience_seconds=900.0),
            True,
            "delivery 01234567 of version 3: at bake@1, carried step by step",
        ),
        (
            a_delivery(last_step="bake@1", patience_seconds=900.0),
            False,
            "delivery 01234567 of version 3: died at bake@1; nobody carries it; "
            f"`tidegate resume {a_delivery().id}` carries it on, the next `tidegate deliver` closes it and "
            f"starts again",
        ),
    ],
)
def test_a_delivery_runs_is_over_or_died(last: DeliverySummary | None, alive: bool, line: str) -> None:
    assert lines_of(DeliveryStatus(last, alive=alive)) == [line, "no fleet runs here"]


@pytest.mark.parametrize(
    ("phase", "seen", "line"),
    [
        (RegionPhase.EMPTY, {}, "empty, empty, at http://127.0.0.1:8080"),
        (
            RegionPhase.STEADY,
            {"stable": an_arm(Role.STABLE, "3"), "previous": an_arm(Role.PREVIOUS, "2")},
            "steady, stable 3, previous 2, at http://127.0.0.1:8080",
        ),
        (
            RegionPhase.TRIAL,
            {"stable": an_arm(Role.STABLE, "2"), "canary": an_arm(Role.CANARY, "3"), "weight": 10, "mirror": 100},
            "trial, stable 2, canary 3, 10 % on the canary, 100 % mirrored, at http://127.0.0.1:8080",
        ),
        (
            RegionPhase.DEGRADED,
            {"stable": an_arm(Role.STABLE, "2", ready=False), "problem": "stable (version 2) is down"},
            "degraded, stable 2 (not ready), at http://127.0.0.1:8080: stable (version 2) is down",
        ),
    ],
)
def test_a_region_is_a_line(phase: RegionPhase, seen: dict[str, object], line: str) -> None:
    assert list(region_lines(a_region(phase=phase, **seen))) == [f"eu-west-1: {line}"]


SERVES = a_region(stable=an_arm(Role.STABLE, "1"))


@pytest.mark.parametrize(
    ("regions", "silent", "code"),
    [
        ([SERVES], {}, 0),
        (
            [
                SERVES,
                a_region(stable=an_arm(Role.STABLE, "1"), phase=RegionPhase.DEGRADED, problem="one engine is missing"),
            ],
            {},
            0,
        ),
        ([SERVES, a_region(stable=an_arm(Role.STABLE, "1", ready=False))], {}, 4),
        ([SERVES, a_region(phase=RegionPhase.EMPTY)], {}, 4),
        ([SERVES], {"us-east-1": "cannot be reached"}, 4),
        ([], {}, 4),
    ],
)
def test_the_exit_code_says_whether_every_region_was_seen_and_serves(
    regions: list[RegionState], silent: dict[str, str], code: int
) -> None:
    fleet = FleetSnapshot(regions=regions, silent=silent, carried={})
    assert StatusReport(DeliveryStatus(), fleet, None, "sqlite:///mlflow.db").exit_code == code


def test_a_region_of_somebody_else_is_unknown_and_not_empty() -> None:
    theirs = ForeignObject(kind="Rollout", name="chat", namespace="serving", owner="managed by Helm")
    service = theirs.model_copy(update={"kind": "Service"})
    state = a_region(
        phase=RegionPhase.UNKNOWN, problem=f"{theirs}; its 4 pods may serve", foreign_objects=[theirs, service]
    )
    assert list(region_lines(state)) == [
        "eu-west-1: unknown, at http://127.0.0.1:8080: "
        "Rollout chat in serving is not tidegate's (managed by Helm); its 4 pods may serve",
        "eu-west-1: Service chat in serving is not tidegate's (managed by Helm)",
    ]


@pytest.mark.parametrize(
    ("silent", "line"),
    [
        (4, "heard of 4 s ago"),
        (120, "heard of 2 min 00 s ago; a trial there ends by itself in 13 min 00 s"),
        (1000, "heard of 16 min 40 s ago; a trial there ends by itself at any moment"),
        (None, "of whom nothing was heard yet"),
    ],
)
def test_no_matter_who_carries_a_trial_is_named_with_his_last_sign_of_life(silent: int | None, line: str) -> None:
    heard = None if silent is None else NOON - timedelta(seconds=silent)
    carried = CarrierHeartbeat(who="ci-7 (process 4711)", heard=heard, unattended_seconds=900.0)
    told = carrier_line("eu-west-1", carried, NOON)
    assert told == f"eu-west-1: carried by ci-7 (process 4711), {line}"


def test_a_region_that_ended_its_trial_says_why_once() -> None:
    why = "version 2 was taken back here at 12:00:00 UTC: nothing was heard of ci-7 for 15m"
    for state in (a_region(taken_away=why), a_region(taken_away=why, problem=why)):
        assert "\n".join(region_lines(state)).count(why) == 1


def test_a_store_that_is_away_is_said_and_hides_nothing_else(tmp_path: Path) -> None:
    class Away:
        def deliveries(self, model: str, *, last: int) -> Any:
            raise StoreUnreachable("MLflow store http://mlflow: no answer")

    (tmp_path / "0f3c.jsonl").write_text("{}\n{}\n")
    away: Any = Away()
    records = read_status(away, "support-llm", tmp_path)
    assert (records.last, records.unreadable) == (None, "MLflow store http://mlflow: no answer")
    assert lines_of(records)[1] == "2 events are not yet written: MLflow has not taken them"


def test_what_steps_wait_for_is_told_while_somebody_carries_the_delivery() -> None:
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
    gates = tuple(
        GateState(name=blind.gate, step=f"{step}", history=(TimedVerdict(at=NOON, verdict=blind),))
        for step in ("build", "canary@eu-west-1/10")
    )
    records = DeliveryStatus(a_delivery(), alive=True, story=DeliveryState(steps=steps, gates=gates))
    assert lines_of(records)[1:-1] == [
        "canary@eu-west-1/10: 10 % of users; gate latency cannot see: Prometheus does not answer",
        "promote@eu-west-1: for an approval by one of risk",
    ]
    assert len(lines_of(replace(records, alive=False))) == 2


def test_the_history_is_a_table_newest_first() -> None:
    over = a_delivery(outcome="rolled-back", reason="gate latency: too slow", ended=NOON + timedelta(minutes=7))
    running = a_delivery(id="fedcba9876543210", version="4", last_step="bake@1", started=NOON + timedelta(days=1))
    dead = a_delivery(id="89abcdef01234567", version="2", on_trial="2-5ac3f1d2", started=NOON - timedelta(days=1))
    found = [PastDelivery(running, alive=True), PastDelivery(over, alive=False), PastDelivery(dead, alive=False)]
    assert list(history_lines(found)) == [
        "DELIVERY          ENGINE      STARTED (UTC)     TOOK        OUTCOME",
        "fedcba9876543210  4           2026-01-02 12:00  -           running, at bake@1",
        "0123456789abcdef  3           2026-01-01 12:00  7 min 00 s  rolled-back: gate latency: too slow",
        "89abcdef01234567  2-5ac3f1d2  2025-12-31 12:00  -           died at its start",
    ]


def a_report(region: RegionState, *, alive: bool = False, champion: str | None = "3") -> StatusReport:
    fleet = FleetSnapshot(regions=[region], silent={}, carried={})
    records = DeliveryStatus(a_delivery(), alive=alive)
    return StatusReport(records, fleet, None, "sqlite:///mlflow.db", in_production=champion)


REVERTED = ForeignChange(
    version="2", reason="somebody changed Rollout chat: argocd-controller at 12:00:00 UTC asks for version 2"
)


@pytest.mark.parametrize(
    ("stable", "foreign", "alive", "champion", "line"),
    [
        ("3", None, False, "3", None),
        ("2", None, False, "3", "users are on version 2, and the registry says version 3"),
        ("2", REVERTED, False, "3", f"users are on version 2, and the registry says version 3: {REVERTED.reason}"),
        # What is asked for and does not serve yet.
        ("3", REVERTED, False, "3", REVERTED.reason),
        # Anyone who applied the champion by hand took nothing away.
        ("2", REVERTED, False, "2", None),
        # While a delivery is under way regions have its version, or the champion still.
        ("3", None, True, "2", None),
        ("2", None, True, "2", None),
        ("2", REVERTED, True, "1", f"users are on version 2, and the registry says version 1: {REVERTED.reason}"),
        ("2", None, False, None, None),
    ],
)
def test_a_region_that_serves_something_else_than_the_registry_says_is_told(
    stable: str, foreign: ForeignChange | None, alive: bool, champion: str | None, line: str | None
) -> None:
    region = a_region(stable=an_arm(Role.STABLE, stable), foreign_change=foreign)
    told = list(other_version_lines(region, a_report(region, alive=alive, champion=champion)))
    assert told == ([f"eu-west-1: {line}"] if line else [])
    assert status_data(a_report(region, champion=champion))["in_production"] == champion


@pytest.mark.parametrize("recorded", [False, True], ids=["nobody recorded it", "the delivery's ending tells it"])
def test_what_a_guard_rolled_back_is_told_once(recorded: bool) -> None:
    rescue = GuardRollback(version="3", at=NOON, since=NOON - timedelta(minutes=15), who="ci-7")
    report = a_report(a_region(unattended=rescue))
    if recorded:
        last = a_delivery(outcome="interrupted", reason=f"eu-west-1: {rescue}")
        report = replace(report, delivery=replace(report.delivery, last=last))
    assert "\n".join(status_lines(report, NOON)).count(str(rescue)) == 1
