"""`tidegate notify`: its name, options and help."""

# click wants the backspace that keeps examples unwrapped.
# ruff: noqa: D301

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.options import SPEC, As, Output, Spec


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
    from tidegate.cli.commands.notify import run

    return run(spec, dry_run=dry_run, as_json=output is Output.JSON)
