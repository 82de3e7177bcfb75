"""Refuses a model version whose files no pod of a workflow could read."""

from __future__ import annotations

from pathlib import Path

from pipelines.spec import Delivery
from pipelines.workflow.reach import SERVER, out_of_reach
from tidegate.cli.compose import open_registry
from tidegate.cli.output import note
from tidegate.core.errors import TidegateError, UsageError


def require_files_for_pods(spec: Delivery, reference: str, state: Path, tracking_uri: str) -> None:
    """Ask the registry where the version's files are. A registry that does not answer here may do so in the cluster.

    Raises:
        UsageError: they are on the disk of one machine.
    """
    registry = open_registry(state, tracking_uri)
    try:
        version = registry.resolve(spec.model.name, reference)
        where = registry.location(version)
    except TidegateError as error:
        note(f"whether pods can read the version's files is not known: {error}")
        return
    reason = out_of_reach(where)
    if reason:
        raise UsageError(f"{version.uri}: its files are at {where}: {reason}; expected {SERVER}")
