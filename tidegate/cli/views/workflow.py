"""A workflow as it changes, line by line."""

from __future__ import annotations

from pipelines.workflow.runs import WorkflowState, progress_lines


def print_progress(last: WorkflowState | None, now: WorkflowState) -> None:
    """What a person wants to know."""
    for line in progress_lines(last, now):
        print(line, flush=True)


def print_state(last: WorkflowState | None, now: WorkflowState) -> None:
    """The whole state as a line of JSON, whenever it is another one."""
    if now != last:
        print(now.model_dump_json(), flush=True)
