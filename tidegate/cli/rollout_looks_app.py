"""`tidegate rollout get|list|status|watch`: names, options and help of the commands that look."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.options import As, Output
from tidegate.cli.rollout_options import Context, Name, Namespace, OfSpec, Region
from tidegate.cli.rollout_place import Asked

looks = typer.Typer()

Stuck = Annotated[
    str,
    typer.Option("--stuck-after", help="How long the controller may owe a reaction, such as 60s, before it is stuck."),
]


@looks.command("get")
def get(
    name: Name = None,
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    stuck_after: Stuck = "60s",
    output: As = Output.TEXT,
) -> int:
    """Show a Rollout with its revisions, ReplicaSets, pods and analysis runs, and why it is as it is. Changes nothing.

    \b
    Examples:
      tidegate rollout get support-llm --context eu-west-1
      tidegate rollout get --spec delivery.yaml --region eu-west-1 --output json
    """
    from tidegate.cli.commands.rollout_look import get as run

    return run(Asked(name, context, namespace, spec, region), stuck_after, as_json=output is Output.JSON)


@looks.command("list")
def listing(
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    output: As = Output.TEXT,
) -> int:
    """List the Rollouts of a namespace: strategy, health, step, weight and pods of each. Changes nothing.

    \b
    Examples:
      tidegate rollout list --context eu-west-1 --namespace serving
      tidegate rollout list --output json
    """
    from tidegate.cli.commands.rollout_look import listing as run

    return run(Asked(None, context, namespace, spec, region), as_json=output is Output.JSON)


@looks.command("status")
def status(
    name: Name = None,
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    timeout: Annotated[str, typer.Option("--timeout", help="How long to wait, such as 30m; 0s looks once.")] = "30m",
    stuck_after: Stuck = "60s",
    output: As = Output.TEXT,
) -> int:
    """Wait until a Rollout is healthy or needs somebody, and say which by the exit code. Changes nothing.

    Ends with 0 healthy, 1 degraded, 2 paused until somebody goes on, 3 an analysis could not decide, 4 stuck, or not
    there in time. A pause that ends by itself is waited for.

    \b
    Examples:
      tidegate rollout status support-llm --context eu-west-1 --timeout 45m
      tidegate rollout status --spec delivery.yaml --region eu-west-1 --timeout 0s --output json
    """
    from tidegate.cli.commands.rollout_status import run

    asked = Asked(name, context, namespace, spec, region)
    return run(asked, timeout, stuck_after, as_json=output is Output.JSON)


@looks.command("watch")
def watch(
    name: Name = None,
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    timeout: Annotated[str | None, typer.Option("--timeout", help="End after so long, such as 10m.")] = None,
    stuck_after: Stuck = "60s",
    output: As = Output.TEXT,
) -> int:
    """Show a Rollout with all that belongs to it while it changes, until Ctrl-C. Changes nothing.

    A tree on a terminal, and a line for each change elsewhere and when `CI` is set; with --output json one of JSON.

    \b
    Examples:
      tidegate rollout watch support-llm --context eu-west-1
      tidegate rollout watch support-llm --timeout 10m --output json
    """
    from tidegate.cli.commands.rollout_watch import run

    asked = Asked(name, context, namespace, spec, region)
    return run(asked, timeout, stuck_after, as_json=output is Output.JSON)
