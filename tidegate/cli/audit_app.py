"""`tidegate audit`: the arguments of its commands."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.options import STATE, As, Output, State, Tracking
from tidegate.core.errors import UsageError

audit = typer.Typer(help="Whether what stands in MLflow of a delivery is what was written.")


@audit.command()
def verify(
    delivery: Annotated[str | None, typer.Argument(help="The delivery's id.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Every delivery of the spec's model.")] = False,
    spec: Annotated[Path | None, typer.Option("--file", "-f", help="The spec: its model is meant by --all.")] = None,
    against: Annotated[Path | None, typer.Option("--against", help="A chain that `audit export` wrote before.")] = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Say what was changed, inserted or removed since it was written: events, spec, kept files, plan, evidence, tags.

    Changes nothing. Exits with 5 when something was found. Signatures are asked for where TIDEGATE_TRUST, or a
    trust.yaml beside the spec, names keys under `ledger`; without keys whoever may write may write a whole new chain.

    \b
    Examples:
      tidegate audit verify c28ef0c2fd4347d8a6cec0bb904568a8
      tidegate audit verify --all -f delivery.yaml --output json
      tidegate audit verify c28ef0c2fd4347d8a6cec0bb904568a8 --against kept.jsonl
    """
    if (delivery is None) != every or (every and spec is None):
        raise UsageError("which delivery?", hint="name one, or say --all with --file and the spec")
    from tidegate.cli.commands.audit import verify as run

    return run(delivery, spec, against, state, tracking_uri, as_json=output is Output.JSON)


@audit.command()
def export(
    delivery: Annotated[str, typer.Argument(help="The delivery's id.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", help="The file to write.", show_default=False)],
    state: State = STATE,
    tracking_uri: Tracking = None,
) -> int:
    """Write the chain with its signatures, one event a line, for a store that cannot be rewritten.

    Changes nothing in MLflow.

    \b
    Examples:
      tidegate audit export c28ef0c2fd4347d8a6cec0bb904568a8 --to kept.jsonl
    """
    from tidegate.cli.commands.audit import export as run

    return run(delivery, to, state, tracking_uri)
