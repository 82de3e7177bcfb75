"""A workflow as it changes, line by line."""

from __future__ import annotations

from pipelines.workflow.runs import WorkflowState, progress_lines
from tidegate.cli.output import Output, data_line, say


def print_progress(last: WorkflowState | None, now: WorkflowState) -> None:
    """What a person wants to know."""
    say(*progress_lines(last, now))


def print_state(last: WorkflowState | None, now: WorkflowState, *, output: Output) -> None:
    """The whole state as a document of a stream, whenever it is another one."""
    if now != last:
        print(data_line(now.model_dump(mode="json"), output), flush=True)
