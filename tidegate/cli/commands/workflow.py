"""`tidegate workflow render`, `submit` and `watch`: a delivery as an Argo Workflow."""

from __future__ import annotations

from pathlib import Path

from pipelines.workflow.render import rendered
from pipelines.workflow.runs import WorkflowState, progress_lines
from tidegate.app.clusters import workflows
from tidegate.app.clusters.workflows import SubmitOptions, workflow_input
from tidegate.cli.output import print_json
from tidegate.core.yaml_text import yaml_text


def render_workflow(spec_path: Path, *, as_json: bool) -> int:
    """Print the objects; talks to nobody."""
    objects = rendered(workflow_input(spec_path))
    if as_json:
        print_json(objects)
    else:
        print("".join(f"---\n{yaml_text(each)}" for each in objects), end="")
    return 0


def submit_workflow(spec_path: Path, asked: SubmitOptions, *, as_json: bool) -> int:
    """Create the workflow; print its name."""
    submitted = workflows.submit_workflow(spec_path, asked)
    if as_json:
        print_json({"workflow": submitted.name, "namespace": submitted.namespace})
    else:
        print(submitted.name)
    return 0


def watch_workflow(name: str, spec_path: Path, context: str | None, *, as_json: bool) -> int:
    """Tell what changes; returns the exit code of the delivery."""
    tell = _print_state if as_json else _print_progress
    return int(workflows.watch_workflow(name, spec_path, context, tell).exit_code)


def _print_progress(last: WorkflowState | None, now: WorkflowState) -> None:
    for line in progress_lines(last, now):
        print(line, flush=True)


def _print_state(last: WorkflowState | None, now: WorkflowState) -> None:
    if now != last:
        print(now.model_dump_json(), flush=True)
