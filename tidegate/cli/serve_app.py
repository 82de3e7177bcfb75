"""`tidegate serve`: its options and help; what it does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tidegate.cli.options import SPEC, STATE, Spec, State, Tracking


class StartAs(StrEnum):
    """What a delivery runs in."""

    PROCESS = "process"
    WORKFLOW = "workflow"


class Queue(StrEnum):
    """As `registry.triggers.queue.Policy`, which help need not load."""

    NEWEST = "newest"
    WAIT = "wait"


def serve(
    spec: Spec = SPEC,
    address: Annotated[
        str, typer.Option(help="Where to listen: HOST:PORT; 0.0.0.0 for MLflow on another machine.")
    ] = "127.0.0.1:8093",
    start: Annotated[
        StartAs, typer.Option(help="What a delivery is started as: `deliver` on this machine, or a workflow.")
    ] = StartAs.PROCESS,
    queue: Annotated[
        Queue, typer.Option(help="Which of several that arrive meanwhile is next: only the newest, or each in turn.")
    ] = Queue.NEWEST,
    every: Annotated[str, typer.Option(help="How often to look at the registry, webhook or not.")] = "30s",
    register: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Make or renew MLflow's webhook to this address, and have it tested."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Of the kubeconfig: the cluster that runs workflows; default: the current one.")
    ] = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
) -> int:
    """Start a delivery whenever a version of the model gets the alias, by MLflow's webhooks and by looking.

    Starts `deliver` or a workflow, which move traffic and aliases; one at a time for the model, whoever started
    it. Moves nothing itself, and stops no delivery when it stops. MLflow signs with TIDEGATE_WEBHOOK_SECRET. The
    page at the address shows deliveries as they go.

    \b
    Examples:
      tidegate serve delivery.yaml
      tidegate serve delivery.yaml --address 0.0.0.0:8093 --register https://tidegate.example.com/webhooks/mlflow
      tidegate serve delivery.yaml --start workflow --queue wait
    """
    from registry.triggers.queue import Policy
    from tidegate.cli.commands.serve import Asked, run

    asked = Asked(
        spec=spec,
        state=state,
        tracking_uri=tracking_uri,
        address=address,
        workflows=start is StartAs.WORKFLOW,
        context=context,
        policy=Policy(queue),
        every=every,
        register=register,
    )
    return run(asked)
