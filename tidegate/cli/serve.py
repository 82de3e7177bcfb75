"""`tidegate serve`: MLflow starts deliveries."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from tidegate.cli.options import SPEC, Duration, Hosts, Spec, TlsCert, TlsKey, duration
from tidegate.cli.settings import given
from tidegate.core.errors import ExitCode, UsageError


def serve(
    spec: Spec = SPEC,
    address: Annotated[
        str, Option(metavar="HOST:PORT", help="Address for webhooks; 0.0.0.0 for MLflow on another machine.")
    ] = "127.0.0.1:8093",
    token: Annotated[
        Path | None,
        Option(help="File with the bearer token, or password, for /metrics; beyond the loopback required."),
    ] = None,
    host: Hosts = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    start: Annotated[
        Literal["process", "workflow"], Option(help="Run `deliver` on this machine, or submit a workflow.")
    ] = "process",
    every: Annotated[
        Duration, Option(parser=duration, help="Polling interval of the registry; webhooks only shorten the wait.")
    ] = Duration(seconds=30),
    register: Annotated[
        str | None, Option(metavar="URL", help="Create or renew MLflow's webhook to this address, and test it.")
    ] = None,
) -> int:
    """Start a delivery whenever a model version gets the alias.

    Learns of it by MLflow's webhooks and by polling. Starts `deliver` or a workflow, one at a time for each model,
    no matter who started the last. Moves nothing itself; its deliveries go on when it stops. MLflow signs with
    TIDEGATE_WEBHOOK_SECRET; during a rotation, TIDEGATE_WEBHOOK_SECRET_BEFORE is valid too.

    \b
    Examples:
      tidegate serve delivery.yaml
      tidegate serve delivery.yaml --address 0.0.0.0:8093 --register https://tidegate.example.com/webhooks/mlflow
      tidegate serve delivery.yaml --address 0.0.0.0:8093 --token serve.token --tls-cert c.pem --tls-key k.pem
      tidegate serve delivery.yaml --start workflow
    """
    from pipelines.adapters.specs import read_delivery
    from pipelines.adapters.trigger_server import serve_triggers
    from pipelines.adapters.web_server import ListenOptions, listening
    from pipelines.state import StateFolder
    from pipelines.triggers.webhooks import SECRET, secrets_of

    if not timedelta(seconds=1) <= every <= timedelta(days=1):
        raise UsageError(f"--every {every}: expected 1s to 1d")
    listen = ListenOptions(address, token, host or (), tls_cert, tls_key)
    read, state = read_delivery(spec), StateFolder(given().state)
    secrets = secrets_of(os.environ, needed=register is not None or not listen.is_local)
    if not secrets:
        given().note(f"{SECRET} is not set: webhooks are refused, and the registry is polled every {every}")
    with listening(listen) as listener:
        serving = serve_triggers(
            read,
            spec,
            listener,
            state=state,
            tracking_uri=given().tracking_uri,
            context=given().context,
            workflows=start == "workflow",
            every=every,
            secrets=secrets,
            register=register,
        )
        asyncio.run(serving)
    return ExitCode.DELIVERED
