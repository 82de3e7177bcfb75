"""Who aborted a trial: its own analysis or deadline, or somebody."""

from __future__ import annotations

import pytest

from rollouts.argo.model import Rollout
from rollouts.argo.state import was_aborted_by_hand


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
