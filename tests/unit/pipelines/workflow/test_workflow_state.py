"""Whether a Workflow object is over."""

from __future__ import annotations

import pytest

from pipelines.workflow.runs import is_over
from tidegate.core.model import Json


@pytest.mark.parametrize(
    ("status", "over"),
    [
        ({}, False),
        ({"status": {"phase": ""}}, False),
        ({"status": {"phase": "Running"}}, False),
        ({"status": {"phase": "Failed"}}, True),
        ({"status": {"phase": "Succeeded"}}, True),
    ],
)
def test_one_that_no_controller_has_seen_is_not_over(status: Json, over: bool) -> None:
    assert is_over({"metadata": {"name": "support-llm-7-x2v9k"}} | status) is over
