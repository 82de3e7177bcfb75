"""What a Rollout's state means: health and requests of recorded ones, who aborted, what is asked for again.

`tests/golden/rollouts/README.md` says where the records come from.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rollouts.argo import actions
from rollouts.argo.actions import INJECTED, original_template, templates_match
from rollouts.argo.model import Rollout, health_of, revision_of, was_aborted_by_hand
from rollouts.errors import NotPossible
from rollouts.kube.resources import STRICT, Request
from tidegate.core.model import Json

RECORDS = Path(__file__).parents[3] / "golden" / "rollouts"
STATES = sorted(path.name for path in (RECORDS / "states").iterdir())
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def record(state: str, name: str) -> Any:
    path = RECORDS / "states" / state / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


PAIRS = [(state, action) for state in STATES for action in record(state, "expected")["requests"]]


@pytest.mark.parametrize("state", STATES)
def test_health(state: str) -> None:
    expected, health = record(state, "expected"), health_of(record(state, "rollout"), now=NOW)
    assert health.state == expected["health"]
    assert expected["cause"] in health.cause


@pytest.mark.parametrize(("state", "action"), PAIRS)
def test_requests(state: str, action: str) -> None:
    wanted = record(state, "expected")["requests"][action]
    if isinstance(wanted, str):
        with pytest.raises(NotPossible, match=wanted):
            _decided(action, record(state, "rollout"))
        return
    request = _decided(action, record(state, "rollout"))
    requests = [request] if request else []
    assert [_sent(request) for request in requests] == [_wanted(request) for request in wanted]
    assert all(request.query == STRICT for request in requests)


def _sent(request: Request) -> tuple[object, ...]:
    path = request.resource.path(request.namespace or "elsewhere", request.name, request.subresource)
    return request.method, path, request.patch, json.dumps(request.body)


def _wanted(record: Json) -> tuple[object, ...]:
    return record["method"], record["path"], record["content_type"], json.dumps(record["body"])


def _decided(action: str, rollout: Json) -> Request | None:
    verb, _, step = action.partition(":")
    decided: Request | None = getattr(actions, verb)(rollout, *([int(step)] if step else []))
    return decided


def aborted(reason: str, message: str) -> dict[str, object]:
    return {"abort": True, "conditions": [{"type": "Progressing", "reason": reason, "message": message}]}


FAILED = {"name": "errors", "status": "Failed", "message": "burns"}


@pytest.mark.parametrize(
    ("status", "by_hand"),
    [
        pytest.param({}, False, id="it goes on"),
        pytest.param({"abort": True}, True, id="its controller has not seen it yet"),
        pytest.param(aborted("RolloutAborted", "Rollout aborted update to revision 2"), True, id="it has"),
        pytest.param(
            aborted("RolloutAborted", 'Rollout aborted update to revision 2: Metric "errors" assessed Failed'),
            False,
            id="its analysis",
        ),
        pytest.param(
            aborted("ProgressDeadlineExceeded", 'ReplicaSet "chat-7d9" has timed out progressing.'),
            False,
            id="its deadline",
        ),
        pytest.param(
            {"abort": True, "canary": {"currentStepAnalysisRunStatus": FAILED}}, False, id="its analysis, told so far"
        ),
    ],
)
def test_an_abort_without_a_reason_is_somebodys(status: dict[str, object], by_hand: bool) -> None:
    assert was_aborted_by_hand(Rollout({"metadata": {"name": "chat"}, "status": status})) is by_hand


def test_a_template_that_is_there_but_for_what_an_api_server_fills_in_is_not_asked_for_again() -> None:
    now = record("healthy", "rollout")["spec"]["template"]
    sets = json.loads((RECORDS / "replica-sets.json").read_text())
    now["spec"] |= {"volumes": [], "hostname": "", "affinity": None}
    same = [revision_of(each) for each in sets if templates_match(now, original_template(each))]
    assert same == [5]


def test_what_the_controller_put_into_a_template_is_not_asked_for() -> None:
    labels = {"tidegate.dev/version": "1", "tidegate.dev/role": "stable", "rollouts-pod-template-hash": "5d"}
    replica_set: Json = {
        "metadata": {"annotations": {INJECTED: json.dumps({"labels": {"tidegate.dev/role": "stable"}})}},
        "spec": {"template": {"metadata": {"labels": dict(labels)}}},
    }
    assert original_template(replica_set)["metadata"]["labels"] == {"tidegate.dev/version": "1"}
    assert replica_set["spec"]["template"]["metadata"]["labels"] == labels
