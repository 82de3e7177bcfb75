"""`tidegate serve`: options and help; what it does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.durations import Duration, duration
from tidegate.cli.options import SPEC, STATE, Spec, State, Tracking


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
        help="Where the page is; default: as --address on the loopback, else 127.0.0.1 and the next port.",
    ),
]


PageToken = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Who looks must know what is in this file: as a password, or as a token."),
]


PageUserHeader = Annotated[
    str | None, typer.Option(metavar="NAME", help="The header in which a proxy that people log in at says who it is.")
]


PageProxy = Annotated[
    list[str] | None,
    typer.Option(metavar="BLOCK", help="Addresses of that proxy; may be repeated.  [default: the loopback]"),
]


HostName = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A name that the page answers to, besides numbers; may be repeated."),
]


Certificate = Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate, for both addresses.")]


CertificateKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its key.")]


def serve(
    spec: Spec = SPEC,
    address: Annotated[
        str, typer.Option(help="Where webhooks come: HOST:PORT; 0.0.0.0 for MLflow on another machine.")
    ] = "127.0.0.1:8093",
    page: PageAddress = None,
    page_token: PageToken = None,
    page_user_header: PageUserHeader = None,
    page_proxy: PageProxy = None,
    host: HostName = None,
    tls_cert: Certificate = None,
    tls_key: CertificateKey = None,
    start: Annotated[
        StartAs, typer.Option(help="What a delivery is started as: `deliver` on this machine, or a workflow.")
    ] = StartAs.PROCESS,
    queue: Annotated[
        Queue, typer.Option(help="Which of several that arrive meanwhile is next: only the newest, or each in turn.")
    ] = Queue.NEWEST,
    every: Annotated[
        Duration,
        typer.Option(parser=duration, help="Polling interval of the registry; webhooks only shorten the wait."),
    ] = Duration(seconds=30),
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

    Starts `deliver` or a workflow, which move traffic and aliases; one at a time for the model, no matter who started
    it. Moves nothing itself, and stops no delivery when it stops. MLflow signs with TIDEGATE_WEBHOOK_SECRET; while
    it is replaced, TIDEGATE_WEBHOOK_SECRET_BEFORE counts too. The page shows deliveries as they go.

    \b
    Examples:
      tidegate serve delivery.yaml
      tidegate serve delivery.yaml --address 0.0.0.0:8093 --register https://tidegate.example.com/webhooks/mlflow
      tidegate serve delivery.yaml --page 0.0.0.0:8094 --page-token page.token --tls-cert c.pem --tls-key k.pem
      tidegate serve delivery.yaml --start workflow --queue wait
    """
    from pipelines.requests import QueuePolicy
    from tidegate.app.serve import ServeOptions
    from tidegate.app.serve import serve as run
    from tidegate.app.wiring.web import ListenOptions

    options = ServeOptions(
        spec=spec,
        state=state,
        tracking_uri=tracking_uri,
        listen=ListenOptions(
            address=address,
            page=page,
            token=page_token,
            user_header=page_user_header,
            proxies=page_proxy or (),
            hosts=host or (),
            certificate=tls_cert,
            key=tls_key,
        ),
        workflows=start is StartAs.WORKFLOW,
        context=context,
        policy=QueuePolicy(queue),
        every=every,
        register=register,
    )
    run(options)
    return 0
