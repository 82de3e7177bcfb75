"""`tidegate serve`: MLflow starts deliveries."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.global_options import given
from tidegate.cli.options import SPEC, Duration, Spec, duration
from tidegate.core.errors import ExitCode, UsageError


class StartAs(StrEnum):
    """What a delivery runs in."""

    PROCESS = "process"
    WORKFLOW = "workflow"


class Queue(StrEnum):
    """As `pipelines.requests.Policy`, which help need not load."""

    NEWEST = "newest"
    WAIT = "wait"


PageAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of the page; default: --address when that is the loopback, else 127.0.0.1 and the next port.",
    ),
]
PageToken = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with the password, or bearer token, of the page."),
]


def serve(
    spec: Spec = SPEC,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address for webhooks; 0.0.0.0 for MLflow on another machine.")
    ] = "127.0.0.1:8093",
    page: PageAddress = None,
    page_token: PageToken = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that the page accepts, besides IP addresses; repeatable."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate of both addresses.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the certificate.")] = None,
    start: Annotated[
        StartAs, typer.Option(help="Run `deliver` on this machine, or submit a workflow.")
    ] = StartAs.PROCESS,
    queue: Annotated[
        Queue, typer.Option(help="Versions that arrive during a delivery: deliver only the newest, or each in turn.")
    ] = Queue.NEWEST,
    every: Annotated[
        Duration,
        typer.Option(parser=duration, help="Polling interval of the registry; webhooks only shorten the wait."),
    ] = Duration(seconds=30),
    register: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Create or renew MLflow's webhook to this address, and test it."),
    ] = None,
) -> int:
    """Start a delivery whenever a model version gets the alias.

    Learns of it by MLflow's webhooks and by polling. Starts `deliver` or a workflow, one at a time for each model,
    no matter who started the last. Moves nothing itself; its deliveries go on when it stops. MLflow signs with
    TIDEGATE_WEBHOOK_SECRET; during a rotation, TIDEGATE_WEBHOOK_SECRET_BEFORE is valid too. Serves the live page.

    \b
    Examples:
      tidegate serve delivery.yaml
      tidegate serve delivery.yaml --address 0.0.0.0:8093 --register https://tidegate.example.com/webhooks/mlflow
      tidegate serve delivery.yaml --page 0.0.0.0:8094 --page-token page.token --tls-cert c.pem --tls-key k.pem
      tidegate serve delivery.yaml --start workflow --queue wait
    """
    from pipelines.adapters.specs import read_delivery
    from pipelines.adapters.trigger_server import serve_triggers
    from pipelines.adapters.web_server import ListenOptions, webhooks_and_page
    from pipelines.requests import QueuePolicy
    from pipelines.state import StateFolder
    from pipelines.triggers.webhooks import SECRET, secrets_of
    from tidegate.core.units import format_duration
    from tidegate.standing import report_of

    if not timedelta(seconds=1) <= every <= timedelta(days=1):
        raise UsageError(f"--every {every}: expected 1s to 1d")
    listen = ListenOptions(address, page, page_token, host or (), tls_cert, tls_key)
    read, state = read_delivery(spec), StateFolder(given().state)
    secrets = secrets_of(os.environ, needed=register is not None or not listen.is_local)
    if not secrets:
        waits = format_duration(every)
        given().note(f"{SECRET} is not set: webhooks are refused, and the registry is polled every {waits}")
    with webhooks_and_page(listen) as listeners:
        serving = serve_triggers(
            read,
            spec,
            listeners,
            lambda delivery, ledgers: report_of(delivery, read, state, ledgers, back="../"),
            state=state,
            tracking_uri=given().tracking_uri,
            context=given().context,
            workflows=start is StartAs.WORKFLOW,
            policy=QueuePolicy(queue),
            every=every,
            secrets=secrets,
            register=register,
        )
        asyncio.run(serving)
    return ExitCode.DELIVERED
