"""Options that every command takes, before its name or after it: how much is said, in which colors, and which files.

What they say holds for the whole process, and for what it starts.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.app.process import TRUST_VARIABLE
from tidegate.core.errors import without_credentials
from tidegate.core.text import one_line, printable


@dataclass
class Verbosity:
    """How much is said on stderr."""

    quiet: bool = False

    def note(self, line: str) -> None:
        """A line for the person who waits."""
        if self.quiet:
            return
        # A terminal that is gone, or a full disk: what is being done goes on, users' way back first of all.
        with suppress(OSError):
            print(one_line(line), file=sys.stderr, flush=True)


_VERBOSITY: ContextVar[Verbosity] = ContextVar("verbosity")


@contextmanager
def verbosity() -> Iterator[Verbosity]:
    """That of one command, which its options change while they are read."""
    token = _VERBOSITY.set(Verbosity())
    try:
        yield _VERBOSITY.get()
    finally:
        _VERBOSITY.reset(token)


def is_quiet() -> bool:
    """Whether only results and errors are to be printed."""
    return _VERBOSITY.get(Verbosity()).quiet


class LogLevel(StrEnum):
    """From which level on log lines are printed."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Redacted(logging.Formatter):
    """Addresses in log lines of others may hold a password."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(without_credentials(super().format(record)))


def _set_quiet(value: bool) -> None:
    # The same option was perhaps given before the command's name: what is not said here takes nothing back.
    if value and (current := _VERBOSITY.get(None)):
        current.quiet = True


def _set_log_level(value: LogLevel | None) -> None:
    if value is not None:
        handler = logging.StreamHandler()
        handler.setFormatter(_Redacted("%(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=value.upper(), handlers=[handler], force=True)


def _set_no_color(value: bool) -> None:
    if value:
        os.environ["NO_COLOR"] = "1"


def _set_kubeconfig(value: Path | None) -> None:
    if value is not None:
        os.environ["KUBECONFIG"] = str(value.absolute())


def _set_trust(value: Path | None) -> None:
    if value is not None:
        os.environ[TRUST_VARIABLE] = str(value.absolute())


def global_options(
    *,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q", "--quiet", callback=_set_quiet, expose_value=False, help="Print results and errors only, no progress."
        ),
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            callback=_set_log_level,
            expose_value=False,
            help="Print log lines: debug, info, warning or error.",
        ),
    ] = None,
    no_color: Annotated[
        bool, typer.Option("--no-color", callback=_set_no_color, expose_value=False, help="As NO_COLOR=1 does.")
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            metavar="FILE",
            callback=_set_kubeconfig,
            expose_value=False,
            help="Credentials of clusters; default: KUBECONFIG, ~/.kube/config, or the pod's own.",
        ),
    ] = None,
    trust: Annotated[
        Path | None,
        typer.Option(
            "--trust",
            envvar=TRUST_VARIABLE,
            metavar="FILE",
            callback=_set_trust,
            expose_value=False,
            help="Trust file of whoever operates deliveries; one next to a spec counts only when it is named.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", expose_value=False, help="Print the traceback of an error.")
    ] = False,
) -> None:
    """Declare them; each acts while the command line is read."""
