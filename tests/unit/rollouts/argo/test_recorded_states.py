"""Recorded states of a Rollout: the phase and health that each has, and the requests that each action then sends.

`tests/golden/rollouts/README.md` says where the records come from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rollouts.argo import compare_and_set, patches
from rollouts.argo.compare_and_set import Precondition
from rollouts.argo.patches import Requests
from rollouts.argo.state import calculated_phase, health_of, phase_of
from rollouts.errors import NotPossible
from rollouts.kube.requests import STRICT
from tidegate.core.model import Json

RECORDS = Path(__file__).parents[3] / "golden" / "rollouts"
STATES = sorted(path.name for path in (RECORDS / "states").iterdir())
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
IMAGE = "registry.example/team/support-llm@sha256:" + "99" * 32
SOMEWHERE_ELSE = {"old": Precondition(pod_hash="0a0a0a0a0"), "step1": Precondition(step=1)}


def record(state: str, name: str) -> Any:
    path = RECORDS / "states" / state / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


PAIRS = [(state, action) for state in STATES for action in record(state, "expected")["requests"]]


def test_there_are_enough_records() -> None:
    assert len(STATES) >= 40
    assert len(PAIRS) >= 60


@pytest.mark.parametrize("state", STATES)
def test_phase_and_health(state: str) -> None:
    expected, rollout = record(state, "expected"), record(state, "rollout")
    found = phase_of(rollout, workload=record(state, "workload"))
    assert (found.phase, found.message) == (expected["phase"], expected["message"])
    if state.startswith("calculated-"):
        assert calculated_phase(rollout) == found
    if expected["health"]:
        health = health_of(rollout, now=NOW, workload=record(state, "workload"))
        assert health.state == expected["health"]
        assert expected["cause"] in health.cause


@pytest.mark.parametrize(("state", "action"), PAIRS)
def test_requests(state: str, action: str) -> None:
    rollout, workload = record(state, "rollout"), record(state, "workload")
    for form, wanted in record(state, "expected")["requests"][action].items():
        ask = _plugin(action, rollout, workload) if form == "plugin" else _safe(action, rollout, workload)
        if isinstance(wanted, str):
            with pytest.raises(NotPossible, match=wanted):
                ask()
            continue
        requests = ask()
        assert [_sent(request) for request in requests] == [_wanted(request) for request in wanted]
        assert all(request.query == (STRICT if form == "safe" else {}) for request in requests)


def _sent(request: Any) -> tuple[object, ...]:
    return request.method, request.path("elsewhere"), request.content_type, request.content


def _wanted(record: Json) -> tuple[object, ...]:
    body = json.dumps(record["body"], separators=(",", ":"), ensure_ascii=False).encode()
    return record["method"], record["path"], record["content_type"], body


def _plugin(action: str, rollout: Json, workload: Json | None) -> Callable[[], Requests]:
    verb, _, given = action.partition("@")[0].partition(":")
    rest = _arguments(verb, given, workload)
    return lambda: getattr(patches, verb)(rollout, *rest[0], **rest[1])


def _safe(action: str, rollout: Json, workload: Json | None) -> Callable[[], Requests]:
    words, _, elsewhere = action.partition("@")
    verb, _, given = words.partition(":")
    positional, named = _arguments(verb, given, workload)
    expected = SOMEWHERE_ELSE.get(elsewhere, Precondition.of(rollout))
    return lambda: getattr(compare_and_set, verb)(rollout, *positional, expected=expected, **named)


def _arguments(verb: str, given: str, workload: Json | None) -> tuple[list[Any], dict[str, Any]]:
    match verb:
        case "to_step":
            return [int(given)], {}
        case "restart":
            return [NOW], {}
        case "undo":
            sets = json.loads((RECORDS / "replica-sets.json").read_text())
            return [sets, int(given or 0)], {"workload": workload}
        case "set_image":
            return [given, IMAGE], {"workload": workload}
        case _:
            return [], {}
