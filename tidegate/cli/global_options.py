"""Options that every command takes, before its name or after it: where state and MLflow are, the output format, and
how much is said.

What they say holds for the whole process, and for what it starts.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from tidegate.cli.output import Data, Output, print_data, say
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

    def show(self, data: Data, *lines: str, names: Iterable[str] = ()) -> None:
        """Print a result on stdout: `data` for programs, `names` for `-o name`, else `lines`."""
        if self.output.is_data:
            print_data(data, self.output)
        else:
            say(*(names if self.output is Output.NAME else lines))


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


def _keep(name: str) -> Callable[[Any], None]:
    """For the settings. An option that is not given takes nothing back: it may stand before the command's name too."""

    def keep(value: Any) -> None:
        if value is not None and value is not False:
            # An empty tracking URI takes back that of the environment.
            setattr(given(), name, value or None)

    return keep


def _export(variable: str) -> Callable[[Path | None], None]:
    """For the process, and for what it starts."""

    def export(value: Path | None) -> None:
        if value is not None:
            os.environ[variable] = str(value.absolute())

    return export


def _set_log_level(value: LogLevel | None) -> None:
    if value is not None:
        handler = logging.StreamHandler()
        handler.setFormatter(_Redacted("%(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=value.upper(), handlers=[handler], force=True)


def _option(names: str, metavar: str | None, callback: Callable[[Any], None] | None, words: str) -> Any:
    return typer.Option(*names.split(), metavar=metavar, callback=callback, expose_value=False, help=words)


_STATE = f"This machine's state; default: .tidegate.  [env var: {STATE_VARIABLE}]"
_TRACKING = f"MLflow's tracking URI; default: a store in --state.  [env var: {TRACKING_VARIABLE}]"
_KUBECONFIG = "Credentials of clusters; default: KUBECONFIG, ~/.kube/config, or the pod's own."
_CONTEXT = "Context of the kubeconfig; default: the current one, or this pod's cluster."
_OUTPUT = "text, json, yaml, name, markdown or junit: see each command."
_QUIET = "Print results and errors only, no progress."
_TRUST = (
    "Trust file of whoever operates deliveries; one next to a spec counts only when it is named.  "
    f"[env var: {TRUST_VARIABLE}]"
)
_LEVEL = "Print log lines: debug, info, warning or error."
_DEBUG = "Print the traceback of an error."


def global_options(
    *,
    state: Annotated[Path | None, _option("--state", "FOLDER", _keep("state_folder"), _STATE)] = None,
    tracking_uri: Annotated[str | None, _option("--tracking-uri", "URI", _keep("tracking_uri"), _TRACKING)] = None,
    kubeconfig: Annotated[Path | None, _option("--kubeconfig", "FILE", _export("KUBECONFIG"), _KUBECONFIG)] = None,
    context: Annotated[str | None, _option("--context", "NAME", _keep("context"), _CONTEXT)] = None,
    output: Annotated[Output | None, _option("-o --output", "FORMAT", _keep("output"), _OUTPUT)] = None,
    quiet: Annotated[bool, _option("-q --quiet", None, _keep("quiet"), _QUIET)] = False,
    trust: Annotated[Path | None, _option("--trust", "FILE", _export(TRUST_VARIABLE), _TRUST)] = None,
    log_level: Annotated[LogLevel | None, _option("--log-level", "LEVEL", _set_log_level, _LEVEL)] = None,
    debug: Annotated[bool, _option("--debug", None, None, _DEBUG)] = False,
) -> None:
    """Declare them; each acts while the command line is read."""
