"""`tidegate workflow render`: a delivery's WorkflowTemplate, and what it needs around it."""

from __future__ import annotations

from pathlib import Path

from pipelines.workflow.blueprint import Blueprint
from pipelines.workflow.render import blueprint_of, rendered
from tidegate.cli.compose import read_delivery
from tidegate.cli.output import print_json
from tidegate.core.yaml_text import yaml_text


def run(spec_path: Path, *, as_json: bool) -> int:
    """Print the objects; talks to nobody."""
    objects = rendered(drawn(spec_path))
    if as_json:
        print_json(objects)
    else:
        print("".join(f"---\n{yaml_text(each)}" for each in objects), end="")
    return 0


def drawn(spec_path: Path) -> Blueprint:
    """What the workflow of that spec is made of.

    Raises:
        SpecError: when the spec is wrong.
        UsageError: it describes no workflow.
    """
    return blueprint_of(read_delivery(spec_path), spec_path)
