"""What a Workflow object tells: its pods, what is new, and how the delivery ended."""

from __future__ import annotations

import pytest

from pipelines.workflow.runs import hindrances, progress_lines, workflow_state
from tidegate.core.errors import ExitCode
from tidegate.core.model import Json


def a_workflow(phase: str, *nodes: Json, message: str = "") -> Json:
    status = {"phase": phase, "message": message, "nodes": {node["id"]: node for node in nodes}}
    return {"metadata": {"name": "support-llm-7-x2v9k"}, "status": status}


def a_pod(template: str, phase: str, code: int | None = None, *, at: str = "") -> Json:
    outputs = {} if code is None else {"outputs": {"exitCode": str(code)}}
    return {
        "id": f"{template}{at}",
        "type": "Pod",
        "templateName": template,
        "phase": phase,
        "finishedAt": at,
        **outputs,
    }


def test_one_that_no_controller_has_seen_is_pending() -> None:
    now = workflow_state({"metadata": {"name": "support-llm-7-x2v9k"}})
    assert (now.phase, now.over, now.pods) == ("Pending", False, ())
    assert list(progress_lines(None, now)) == ["support-llm-7-x2v9k: pending"]


def test_only_what_is_new_is_told() -> None:
    before = workflow_state(a_workflow("Running", a_pod("open", "Succeeded", 0), a_pod("engine", "Running")))
    after = workflow_state(
        a_workflow("Failed", a_pod("open", "Succeeded", 0), a_pod("engine", "Error"), message="no node")
    )
    assert list(progress_lines(before, after)) == ["engine: error", "support-llm-7-x2v9k: failed: no node"]


def test_what_hinders_a_pod_is_told_once() -> None:
    events = [
        {"reason": "Failed", "message": 'Failed to pull image "a":\n  not found'},
        {"reason": "Failed", "message": "Error: ErrImagePull"},
        {"reason": "Failed", "message": "Error: ImagePullBackOff"},
        {"reason": "BackOff", "message": "Back-off pulling image"},
        {"reason": "Failed", "message": 'Failed to pull image "a": not found'},
        {"reason": "Failed", "message": 'Error: secret "mlflow" not found'},
        {"reason": "Scheduled"},
    ]
    said = list(hindrances(events))
    assert said == ['Failed to pull image "a": not found', 'Error: secret "mlflow" not found']
    now = workflow_state(a_workflow("Running", a_pod("open", "Pending")))
    warned = now.warned({"open": said[:1]})
    assert list(progress_lines(now, warned)) == [f"open: pending: {said[0]}"]
    assert list(progress_lines(warned, now.warned({"open": said}))) == [f"open: pending: {said[1]}"]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        # The exit handler knows how it ended, whatever code the step had.
        ((a_pod("stage", "Failed", 4, at="09:00"), a_pod("close", "Failed", 3, at="09:05")), ExitCode.INCONCLUSIVE),
        ((a_pod("close", "Failed", 4, at="09:05"), a_pod("close", "Failed", 1, at="09:09")), ExitCode.ROLLED_BACK),
        # Nothing was opened: there was nothing to close, which is no success.
        ((a_pod("open", "Failed", 2, at="09:00"), a_pod("close", "Succeeded", 0, at="09:01")), ExitCode.USAGE),
        ((a_pod("stage", "Failed", 137, at="09:00"),), ExitCode.OUTSIDE),
        ((), ExitCode.OUTSIDE),
    ],
)
def test_a_workflow_that_failed_exits_as_its_delivery_did(nodes: tuple[Json, ...], expected: ExitCode) -> None:
    assert workflow_state(a_workflow("Failed", *nodes)).exit_code is expected


def test_one_that_succeeded_has_delivered() -> None:
    assert workflow_state(a_workflow("Succeeded", a_pod("close", "Succeeded", 0))).exit_code is ExitCode.DELIVERED
