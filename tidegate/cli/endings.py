"""How a command ends that could not do what it was asked: one line for the person, and the exit code.

A bug of ours comes with its traceback, which holds no secret.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import traceback
from contextlib import suppress

from pydantic import ValidationError
from typer import Abort, Exit
from typer.exceptions import TyperException

from tidegate import __version__
from tidegate.core.errors import ExitCode, TidegateError, without_credentials
from tidegate.core.text import one_line, printable, redacted

PACKAGES = ("tidegate", "pipelines", "rollouts", "gates", "registry", "engine_images", "slo")
"""Those of the wheel: what is missing of them is no extra."""
SECRET_NAME = re.compile(r"(?i)token|secret|passw|credential|api_?key|access_?key")
"""Names of variables whose values nobody else may see."""
SHORT = 20
"""Lines of a detail that are told with the error."""


def ended_by(error: BaseException, *, debug: bool) -> int:
    """Say what went wrong, with the traceback of a bug, or of anything when `debug`; returns the code that means it."""
    match error:
        case Exit():
            return error.exit_code
        case BrokenPipeError():
            return ExitCode.NO_READER
        case KeyboardInterrupt() | Abort():
            complain("tidegate: stopped")
            return ExitCode.INTERRUPTED
        case TyperException():
            at, message = getattr(error, "ctx", None), error.format_message().rstrip(".")
            if isinstance(error.__cause__, ValidationError):
                found = error.__cause__.errors()[0]["input"]
                message = message.replace("Input should be ", f"found {found!r}; expected ")
            message = message.replace("Value error, ", "")
            complain(one_line(f"tidegate: {message}; see `{at.command_path if at else 'tidegate'} --help`"))
            return int(error.exit_code)
        case ModuleNotFoundError(name=str(name)) if name.partition(".")[0] not in PACKAGES:
            from tidegate.core.adapters.extras import not_installed

            error = not_installed(name)
    if debug or not isinstance(error, TidegateError | OSError):
        complain(printable(_without_secrets("".join(traceback.format_exception(error)))).rstrip())
    return _told(error, debug=debug)


def _told(error: BaseException, *, debug: bool) -> int:
    if isinstance(error, TidegateError):
        if not debug:
            complain(printable(str(error)) if error.has_places else one_line(f"tidegate: {error}"))
        if error.detail and not debug:
            complain(printable(error.detail) if error.detail.count("\n") <= SHORT else "(more with --debug)")
        return int(error.exit_code)
    if isinstance(error, OSError):
        # A file, a folder or a disk that nobody closer to it had a word for.
        why = (error.strerror or str(error) or type(error).__name__).lower()
        complain(one_line(f"tidegate: {error.filename}: {why}" if error.filename else f"tidegate: {why}"))
        return ExitCode.OUTSIDE
    program = f"tidegate {__version__}, Python {platform.python_version()}, {platform.platform()}"
    complain(one_line(f"tidegate: internal error, please report it with the lines above ({program})"))
    return ExitCode.INTERNAL


def complain(text: str) -> None:
    """Tell a person, if anybody can be told: what a command ends with does not hang on a full disk."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def _without_secrets(text: str) -> str:
    """Cut users out of addresses, and values out of which variables, by their names, are secrets."""
    from tidegate.core.access import scrubbed

    for value in os.environ.values():
        text = text.replace(value, redacted(value)) if "://" in value else text
    hidden = (value for name, value in os.environ.items() if SECRET_NAME.search(name))
    return without_credentials(scrubbed(text, hidden))
