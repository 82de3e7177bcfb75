"""Options that every command takes, before its name or after it: where state and MLflow are, the output format, and
how much is said.

What they say holds for the whole process, and for what it starts.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from tidegate.cli.output import Output
from tidegate.cli.preflight import kept_private
from tidegate.core.errors import without_credentials
from tidegate.core.process import TRUST_VARIABLE
from tidegate.core.text import one_line, printable

STATE_VARIABLE = "TIDEGATE_STATE"
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"


@dataclass
class Settings:
    """What was said of one command, and what the environment says where nothing was."""

    quiet: bool = False
    output: Output = Output.TEXT
    context: str | None = None
    """Of the kubeconfig; None for its current one, or the cluster of this pod."""
    state_folder: Path = field(default_factory=lambda: Path(os.environ.get(STATE_VARIABLE) or ".tidegate"))
    tracking_uri: str | None = field(default_factory=lambda: os.environ.get(TRACKING_VARIABLE) or None)
    """Of MLflow; None for the store in the state folder."""

    @property
    def state(self) -> Path:
        """The folder of this machine's state, closed to others.

        Raises:
            Refused: it is another user's.
        """
        return kept_private(self.state_folder)

    def note(self, line: str) -> None:
        """A line on stderr for the person who waits."""
        if self.quiet:
            return
        # A terminal that is gone, or a full disk: what is being done goes on, users' way back first of all.
        with suppress(OSError):
            print(one_line(line), file=sys.stderr, flush=True)


_SETTINGS: ContextVar[Settings] = ContextVar("settings")


@contextmanager
def settings() -> Iterator[Settings]:
    """Those of one command, which its options change while they are read."""
    token = _SETTINGS.set(Settings())
    try:
        yield _SETTINGS.get()
    finally:
        _SETTINGS.reset(token)


def given() -> Settings:
    """What was said of the command that runs."""
    return _SETTINGS.get(None) or Settings()


Made = TypeVar("Made", bound=Callable[..., int])


def prints(*formats: Output) -> Callable[[Made], Made]:
    """The command prints its result as text, or in one of these formats; another is refused before it begins."""

    def mark(command: Made) -> Made:
        command.formats = (Output.TEXT, *formats)  # type: ignore[attr-defined]
        return command

    return mark


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


# Each option was perhaps given before the command's name: what is not said after it takes nothing back.


def _set_quiet(value: bool) -> None:
    if value:
        given().quiet = True


def _set_output(value: Output | None) -> None:
    if value is not None:
        given().output = value


def _set_context(value: str | None) -> None:
    if value is not None:
        given().context = value


def _set_state(value: Path | None) -> None:
    if value is not None:
        given().state_folder = value


def _set_tracking(value: str | None) -> None:
    if value is not None:
        given().tracking_uri = value or None


def _set_log_level(value: LogLevel | None) -> None:
    if value is not None:
        handler = logging.StreamHandler()
        handler.setFormatter(_Redacted("%(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=value.upper(), handlers=[handler], force=True)


def _set_kubeconfig(value: Path | None) -> None:
    if value is not None:
        os.environ["KUBECONFIG"] = str(value.absolute())


def _set_trust(value: Path | None) -> None:
    if value is not None:
        os.environ[TRUST_VARIABLE] = str(value.absolute())


def _option(*names: str, callback: Callable[..., None] | None, metavar: str | None = None, words: str) -> Any:
    return typer.Option(*names, metavar=metavar, callback=callback, expose_value=False, help=words)


StateOption = _option(
    "--state",
    metavar="FOLDER",
    callback=_set_state,
    words=f"This machine's state; default: .tidegate.  [env var: {STATE_VARIABLE}]",
)
TrackingOption = _option(
    "--tracking-uri",
    metavar="URI",
    callback=_set_tracking,
    words=f"MLflow's tracking URI; default: a store in --state.  [env var: {TRACKING_VARIABLE}]",
)
KubeconfigOption = _option(
    "--kubeconfig",
    metavar="FILE",
    callback=_set_kubeconfig,
    words="Credentials of clusters; default: KUBECONFIG, ~/.kube/config, or the pod's own.",
)
ContextOption = _option(
    "--context",
    metavar="NAME",
    callback=_set_context,
    words="Context of the kubeconfig; default: the current one, or this pod's cluster.",
)
OutputOption = _option(
    "-o",
    "--output",
    metavar="FORMAT",
    callback=_set_output,
    words="text, json, yaml, name, markdown or junit: see each command.",
)
QuietOption = _option("-q", "--quiet", callback=_set_quiet, words="Print results and errors only, no progress.")
TrustOption = _option(
    "--trust",
    metavar="FILE",
    callback=_set_trust,
    words="Trust file of whoever operates deliveries; one next to a spec counts only when it is named.  "
    f"[env var: {TRUST_VARIABLE}]",
)
LogLevelOption = _option(
    "--log-level",
    metavar="LEVEL",
    callback=_set_log_level,
    words="Print log lines: debug, info, warning or error.",
)
DebugOption = _option("--debug", callback=None, words="Print the traceback of an error.")


def global_options(
    *,
    state: Annotated[Path | None, StateOption] = None,
    tracking_uri: Annotated[str | None, TrackingOption] = None,
    kubeconfig: Annotated[Path | None, KubeconfigOption] = None,
    context: Annotated[str | None, ContextOption] = None,
    output: Annotated[Output | None, OutputOption] = None,
    quiet: Annotated[bool, QuietOption] = False,
    trust: Annotated[Path | None, TrustOption] = None,
    log_level: Annotated[LogLevel | None, LogLevelOption] = None,
    debug: Annotated[bool, DebugOption] = False,
) -> None:
    """Declare them; each acts while the command line is read."""
