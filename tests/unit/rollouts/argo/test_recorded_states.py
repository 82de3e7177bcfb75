"""Recorded states of a Rollout: the phase and health that each has, and the requests that each action then sends.

`tests/golden/rollouts/README.md` says where the records come from.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rollouts.argo import compare_and_set
from rollouts.argo.compare_and_set import Precondition, Requests
from rollouts.argo.state import calculated_phase, health_of, phase_of
from rollouts.errors import NotPossible
from rollouts.kube.model import STRICT, Request
from tidegate.core.model import Json

RECORDS = Path(__file__).parents[3] / "golden" / "rollouts"
STATES = sorted(path.name for path in (RECORDS / "states").iterdir())
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SOMEWHERE_ELSE = {"old": Precondition(pod_hash="0a0a0a0a0"), "step1": Precondition(step=1)}


def record(state: str, name: str) -> Any:
    path = RECORDS / "states" / state / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


PAIRS = [(state, action) for state in STATES for action in record(state, "expected")["requests"]]


def test_there_are_enough_records() -> None:
    assert len(STATES) >= 40
    assert len(PAIRS) >= 50


@pytest.mark.parametrize("state", STATES)
def test_phase_and_health(state: str) -> None:
    expected, rollout = record(state, "expected"), record(state, "rollout")
    found = phase_of(rollout)
    assert (found.phase, found.message) == (expected["phase"], expected["message"])
    if state.startswith("calculated-"):
        assert calculated_phase(rollout) == found
    if expected["health"]:
        health = health_of(rollout, now=NOW)
        assert health.state == expected["health"]
        assert expected["cause"] in health.cause


@pytest.mark.parametrize(("state", "action"), PAIRS)
def test_requests(state: str, action: str) -> None:
    wanted = record(state, "expected")["requests"][action]
    if isinstance(wanted, str):
        with pytest.raises(NotPossible, match=wanted):
            _decided(action, record(state, "rollout"))
        return
    requests = _decided(action, record(state, "rollout"))
    assert [_sent(request) for request in requests] == [_wanted(request) for request in wanted]
    assert all(request.query == STRICT for request in requests)


def _sent(request: Request) -> tuple[object, ...]:
    path = request.resource.path(request.namespace or "elsewhere", request.name, request.subresource)
    return request.method, path, request.patch, json.dumps(request.body)


def _wanted(record: Json) -> tuple[object, ...]:
    return record["method"], record["path"], record["content_type"], json.dumps(record["body"])


def _decided(action: str, rollout: Json) -> Requests:
    words, _, elsewhere = action.partition("@")
    verb, _, given = words.partition(":")
    expected = SOMEWHERE_ELSE.get(elsewhere, Precondition.of(rollout))
    match verb:
        case "to_step":
            return compare_and_set.to_step(rollout, int(given), expected)
        case "undo":
            sets = json.loads((RECORDS / "replica-sets.json").read_text())
            return compare_and_set.undo(rollout, sets, int(given), expected)
        case _:
            return getattr(compare_and_set, verb)(rollout, expected)
