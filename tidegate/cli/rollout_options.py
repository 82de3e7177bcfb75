"""Options that the commands about one Rollout share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The Rollout; with --spec the delivery's.", show_default=False)
]
Context = Annotated[
    str | None, typer.Option("--context", help="Of the kubeconfig; default: its current one, or this pod's cluster.")
]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Default: the context's.")]
OfSpec = Annotated[
    Path | None,
    typer.Option("--spec", help="A delivery's spec: gives cluster, namespace and name.", show_default=False),
]
Region = Annotated[str | None, typer.Option("--region", help="Of --spec; may be left out when there is one.")]
ExpectHash = Annotated[
    str | None, typer.Option("--expect-hash", help="Refuse unless this is the pod template hash of the new version.")
]
ExpectStep = Annotated[
    int | None, typer.Option("--expect-step", min=0, help="Refuse unless it is at the step with this index, from 0.")
]
