"""What `tidegate status` says of a delivery and of a region, in one line each."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from registry.model import DeliverySummary
from rollouts.model import Arm, Phase, RegionState, Role, Stranger
from tidegate.cli.commands.status import _delivery_line, _exit_code, _region_line, _stranger_lines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_delivery(**changes: object) -> DeliverySummary:
    known: dict[str, object] = {
        "id": "0123456789abcdef", "name": "support-llm", "version": "3", "champion": "2", "started": NOON,
        "host": "here", "pid": 4711, "heartbeat": NOON,
    }  # fmt: skip
    return DeliverySummary.model_validate(known | changes)


def an_arm(role: Role, version: str, *, ready: bool = True) -> Arm:
    return Arm(role=role, version=version, digest="d", url="http://127.0.0.1:1", ready=ready)


def a_region(**changes: object) -> RegionState:
    known: dict[str, object] = {"region": "eu-west-1", "phase": Phase.STEADY, "entry": "http://127.0.0.1:8080"}
    return RegionState.model_validate(known | changes)


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
            "delivery 01234567 of version 3: died at build; process 4711 on here is gone; "
            f"`tidegate resume {a_delivery().id}` carries it on, the next `tidegate deliver` closes it and starts anew",
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
            f"`tidegate resume {a_delivery().id}` carries it on, the next `tidegate deliver` closes it and starts anew",
        ),
    ],
)
def test_a_delivery_runs_is_over_or_died(last: DeliverySummary | None, alive: bool, line: str) -> None:
    assert _delivery_line(last, alive=alive) == line


def test_a_region_without_engines_is_empty() -> None:
    assert _region_line(a_region(phase=Phase.EMPTY)) == "eu-west-1: empty, empty, at http://127.0.0.1:8080"


def test_a_steady_region_names_what_serves_and_what_is_warm() -> None:
    state = a_region(stable=an_arm(Role.STABLE, "3"), previous=an_arm(Role.PREVIOUS, "2"))
    assert _region_line(state) == "eu-west-1: steady, stable 3, previous 2, at http://127.0.0.1:8080"


def test_a_trial_says_how_many_users_are_on_it() -> None:
    state = a_region(
        phase=Phase.TRIAL, stable=an_arm(Role.STABLE, "2"), canary=an_arm(Role.CANARY, "3"), weight=10, mirror=100
    )
    assert _region_line(state) == (
        "eu-west-1: trial, stable 2, canary 3, 10 % on the canary, 100 % mirrored, at http://127.0.0.1:8080"
    )


def test_an_engine_that_is_down_is_marked_and_the_problem_comes_last() -> None:
    state = a_region(
        phase=Phase.DEGRADED, stable=an_arm(Role.STABLE, "2", ready=False), problem="stable (version 2) is down"
    )
    assert _region_line(state) == (
        "eu-west-1: degraded, stable 2 (not ready), at http://127.0.0.1:8080: stable (version 2) is down"
    )


SERVES = a_region(stable=an_arm(Role.STABLE, "1"))


@pytest.mark.parametrize(
    ("regions", "silent", "code"),
    [
        ([SERVES], {}, 0),
        (
            [SERVES, a_region(stable=an_arm(Role.STABLE, "1"), phase=Phase.DEGRADED, problem="one engine is missing")],
            {},
            0,
        ),
        ([SERVES, a_region(stable=an_arm(Role.STABLE, "1", ready=False))], {}, 4),
        ([SERVES, a_region(phase=Phase.EMPTY)], {}, 4),
        ([SERVES], {"us-east-1": "cannot be reached"}, 4),
        ([], {}, 4),
    ],
)
def test_the_exit_code_says_whether_every_region_was_seen_and_serves(
    regions: list[RegionState], silent: dict[str, str], code: int
) -> None:
    assert _exit_code(regions, silent) == code


def test_a_region_of_somebody_else_is_unknown_and_not_empty() -> None:
    theirs = Stranger(kind="Rollout", name="chat", namespace="serving", owner="managed by Helm")
    service = theirs.model_copy(update={"kind": "Service"})
    state = a_region(phase=Phase.UNKNOWN, problem=f"{theirs}; its 4 pods may serve", strangers=[theirs, service])
    assert _region_line(state) == (
        "eu-west-1: unknown, at http://127.0.0.1:8080: "
        "Rollout chat in serving is not tidegate's (managed by Helm); its 4 pods may serve"
    )
    assert _stranger_lines(state) == ["eu-west-1: Service chat in serving is not tidegate's (managed by Helm)"]
