"""`tidegate init`, `schema`, `completion`, `doctor`, `notify`: what prepares and checks."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.completion import Shell, print_script
from tidegate.cli.options import SPEC, STATE, As, Spec, State, Tracking, spread
from tidegate.cli.output import Output
from tidegate.cli.rollout_options import RegionOptions


def init(folder: Annotated[Path, typer.Argument(help="Folder to write to.")] = Path()) -> int:
    """Write a delivery.yaml, a golden set and prompts to start with. Overwrites nothing.

    \b
    Examples:
      tidegate init support
    """
    from tidegate.cli.commands.init import write_example

    return write_example(folder)


def schema(kind: Annotated[str, typer.Argument(help="delivery, trust, gates, batch or answer.")] = "delivery") -> int:
    """Print a JSON schema, for editors and checks: of a spec, or of the lines of `gate stream`.

    \b
    Examples:
      tidegate schema delivery > delivery.schema.json
      tidegate schema batch
    """
    from tidegate.cli.commands.init import print_schema

    return print_schema(kind)


def completion(
    ctx: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)]
) -> int:
    """Print the completion script of a shell.

    \b
    Examples:
      tidegate completion bash > ~/.local/share/bash-completion/completions/tidegate
      tidegate completion zsh > "${fpath[1]}/_tidegate"
      tidegate completion fish > ~/.config/fish/completions/tidegate.fish
    """
    return print_script(ctx.find_root().command, shell)


@spread
def doctor(
    *,
    spec: Spec = SPEC,
    where: RegionOptions,
    controller_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace of the Argo Rollouts controller.")
    ] = "argo-rollouts",
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Find what would break a delivery in the clusters, and the fix. Changes nothing.

    Exits with 1 on an error or a warning, with 4 when a region cannot be reached.

    \b
    Examples:
      tidegate doctor delivery.yaml
      tidegate doctor --region eu-west-1 --output json
    """
    from tidegate.app.clusters.doctor import DoctorOptions
    from tidegate.cli.commands.doctor import show_findings

    asked = DoctorOptions(where.selected, controller_namespace, state, tracking_uri)
    return show_findings(spec, asked, output=output)


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

    return try_notifications(spec, dry_run=dry_run, output=output)
