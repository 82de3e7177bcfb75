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

from tidegate import __version__
from tidegate.cli.preflight import PACKAGES
from tidegate.core.adapters.extras import not_installed
from tidegate.core.errors import ExitCode, TidegateError, without_credentials
from tidegate.core.text import one_line, printable, redacted

SECRET_NAME = re.compile(r"(?i)token|secret|passw|credential|api_?key|access_?key")
"""Names of variables whose values nobody else may see."""
LEAST = 6
"""Characters of a value that is taken out; a shorter one would be a common word."""
SHORT = 20
"""Lines of a detail that are told with the error."""


def ended_by(error: Exception, *, debug: bool) -> int:
    """Say what went wrong, with the traceback of a bug, or of anything when `debug`; returns the code that means it."""
    if isinstance(error, BrokenPipeError):
        return ExitCode.NO_READER
    if isinstance(error, ModuleNotFoundError) and not _is_ours(error.name):
        error = not_installed(str(error.name))
    is_bug = not isinstance(error, TidegateError | OSError)
    if debug or is_bug:
        complain(printable(_without_secrets("".join(traceback.format_exception(error)))).rstrip())
    if isinstance(error, TidegateError):
        return int(error.exit_code) if debug else _refused(error)
    if isinstance(error, OSError):
        return _failed_by_system(error)
    program = f"tidegate {__version__}, Python {platform.python_version()}, {platform.platform()}"
    complain(one_line(f"tidegate: internal error, please report it with the lines above ({program})"))
    return ExitCode.INTERNAL


def _refused(error: TidegateError) -> int:
    """An error that a person is meant to read."""
    complain(printable(str(error)) if error.has_places else one_line(f"tidegate: {error}"))
    if error.detail:
        short = error.detail.count("\n") <= SHORT
        complain(printable(error.detail) if short else "(more with --debug)")
    return int(error.exit_code)


def _is_ours(module: str | None) -> bool:
    return not module or module.partition(".")[0] in {*PACKAGES, "tidegate"}


def _failed_by_system(error: OSError) -> int:
    """A file, a folder or a disk that nobody closer to it had a word for."""
    why = (error.strerror or str(error) or type(error).__name__).lower()
    complain(one_line(f"tidegate: {error.filename}: {why}" if error.filename else f"tidegate: {why}"))
    return ExitCode.OUTSIDE


def complain(text: str) -> None:
    """Tell a person, if anybody can be told: what a command ends with does not hang on a full disk."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def flushed(code: int) -> int:
    """The exit code once what was printed is out. Python would try again at its end, and make 120 of what fails."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if stream is sys.stdout:
                code = code or ended_by(error, debug=False)
            # Tests have an output of their own, without a descriptor.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _without_secrets(text: str) -> str:
    """Cut users out of addresses, and values out of which variables, by their names, are secrets."""
    for value in os.environ.values():
        text = text.replace(value, redacted(value)) if "://" in value else text
    hidden = [value for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) >= LEAST]
    # The longest first: one may be a part of another.
    for value in sorted(hidden, key=len, reverse=True):
        text = text.replace(value, "***")
    return without_credentials(text)
