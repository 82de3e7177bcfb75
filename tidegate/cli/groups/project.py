"""`tidegate init`, `schema`, `doctor`, `notify`: what prepares and checks a delivery's spec and its clusters."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.options import SPEC, STATE, As, Output, Spec, State, Tracking


def init(folder: Annotated[Path, typer.Argument(help="Where to write.")] = Path()) -> int:
    """Write a delivery.yaml, a golden set and users' prompts to start from. Overwrites nothing.

    \b
    Examples:
      tidegate init support
    """
    from tidegate.cli.commands.init import write_example

    return write_example(folder)


def schema(kind: Annotated[str, typer.Argument(help="delivery, trust, gates, batch or answer.")] = "delivery") -> int:
    """Print the JSON schema of a spec, or of a line that `gate stream` reads or writes, for editors and checks.

    \b
    Examples:
      tidegate schema delivery > delivery.schema.json
      tidegate schema batch
    """
    from tidegate.cli.commands.init import print_schema

    return print_schema(kind)


def doctor(
    spec: Spec = SPEC,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="Of the spec; repeatable; all when not given.")
    ] = None,
    controller_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Where the Argo Rollouts controller runs.")
    ] = "argo-rollouts",
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Look for what would break a delivery in a region's cluster, and say why and what to do. Changes nothing.

    Exits with 1 when a finding is an error or a warning, with 4 when a region cannot be reached.

    \b
    Examples:
      tidegate doctor delivery.yaml
      tidegate doctor --region eu-west-1 --output json
    """
    from tidegate.app.clusters.doctor import DoctorOptions
    from tidegate.cli.commands.doctor import show_findings

    asked = DoctorOptions(tuple(region or ()), controller_namespace, state, tracking_uri)
    return show_findings(spec, asked, as_json=output is Output.JSON)


def notify(
    spec: Spec = SPEC,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every message instead; send nothing.")] = False,
    output: As = Output.TEXT,
) -> int:
    """Send a test message to everyone under `notify` in a spec, or show what a delivery would send.

    Changes nothing else. Addresses come from the environment only, and are never printed. Exits with 4 when a
    message was not taken, with 2 when a variable is not set.

    \b
    Examples:
      tidegate notify delivery.yaml --dry-run
      tidegate notify delivery.yaml
    """
    from tidegate.cli.commands.notify import try_notifications

    return try_notifications(spec, dry_run=dry_run, as_json=output is Output.JSON)
