"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.app.process import TRUST_VARIABLE
from tidegate.cli.preflight import kept_private


class Output(StrEnum):
    """How a command reports."""

    TEXT = "text"
    JSON = "json"


class PlanOutput(StrEnum):
    """How a plan is told."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    """The comment under a merge request."""


Spec = Annotated[Path, typer.Argument(help="The delivery's spec.", show_default=True)]
State = Annotated[
    Path,
    typer.Option("--state", envvar="TIDEGATE_STATE", callback=kept_private, help="Where this machine keeps its state."),
]
Tracking = Annotated[
    str | None,
    typer.Option("--tracking-uri", envvar="MLFLOW_TRACKING_URI", help="The MLflow registry; default: one in --state."),
]


def _for_the_whole_process(trust: Path | None) -> Path | None:
    """What reads the trust file asks the variable: one file holds for all of a command, and for what it starts."""
    if trust is not None:
        os.environ[TRUST_VARIABLE] = str(trust.absolute())
    return trust


TrustFile = Annotated[
    Path | None,
    typer.Option(
        "--trust",
        envvar=TRUST_VARIABLE,
        metavar="FILE",
        callback=_for_the_whole_process,
        help="Whom to believe; default: trust.yaml next to the spec.",
    ),
]
SshKey = Annotated[
    Path | None,
    typer.Option(
        "--ssh-key", envvar="TIDEGATE_SSH_KEY", metavar="FILE",
        help="Prove who you are by this SSH key; the public one of a key that an agent has will do.",
    ),
]  # fmt: skip
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--oidc-token-file", envvar="TIDEGATE_OIDC_TOKEN_FILE", metavar="FILE",
        help="Prove who you are by the OIDC token in this file; or TIDEGATE_OIDC_TOKEN holds one.",
    ),
]  # fmt: skip
TokenCommand = Annotated[
    str | None,
    typer.Option(
        "--oidc-token-command", envvar="TIDEGATE_OIDC_TOKEN_COMMAND", metavar="COMMAND",
        help="A command that prints an OIDC token; {digest} in it is what the token must carry.",
    ),
]  # fmt: skip
As = Annotated[Output, typer.Option("--output", help="How to report.")]
InCI = Annotated[
    bool,
    typer.Option(
        "--ci",
        help="For CI: plain lines, JUnit XML in tidegate-junit.xml, and a Markdown summary: on GitHub on the job's "
        "page, in GitLab in tidegate-summary.md.",
    ),
]
JUnit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML there.")]
Summary = Annotated[Path | None, typer.Option("--summary", metavar="FILE", help="Write a Markdown summary there.")]
SPEC = Path("delivery.yaml")
STATE = Path(".tidegate")
