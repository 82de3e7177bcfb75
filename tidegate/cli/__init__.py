"""Commands: they build the adapters and hand them down."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.core.errors import TidegateError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Whatever goes wrong is one line on stderr: what happened, what to do."""
    from tidegate.app.process import notes_to
    from tidegate.core.errors import ExitCode

    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        with notes_to(_to_stderr):
            return _run([argument for argument in arguments if argument != "--debug"] or ["--help"])
    except KeyboardInterrupt:
        print("tidegate: stopped", file=sys.stderr)
        return ExitCode.INTERRUPTED
    # All of them: Python's own exit code for what nobody catches is 1, which says that a gate failed.
    except Exception as error:  # noqa: BLE001
        return _ended_by(error, arguments, debug=debug)


def _to_stderr(line: str) -> None:
    from tidegate.core.text import printable

    print(printable(line), file=sys.stderr, flush=True)


def _ended_by(error: Exception, arguments: Sequence[str], *, debug: bool) -> int:
    from tidegate.core.errors import TidegateError

    if isinstance(error, TidegateError):
        return _refused(error, debug=debug)
    if isinstance(error, ModuleNotFoundError) and not _is_ours(error.name):
        return _missing(error, debug=debug)
    if isinstance(error, OSError):
        return _unread() if isinstance(error, BrokenPipeError) else _failed_by_system(error, debug=debug)
    return _crashed(error, arguments, debug=debug)


def _run(arguments: list[str]) -> int:
    from tidegate.cli.preflight import refuse_shadowed_packages

    # Before the commands, which import them.
    refuse_shadowed_packages()

    from typer import Abort, Exit
    from typer.exceptions import TyperException
    from typer.main import get_command

    from tidegate.cli.app import app

    command = get_command(app)
    try:
        # Not `app(...)`: that makes exit codes of what is told apart above.
        with command.make_context("tidegate", arguments) as context:
            code = command.invoke(context)
        sys.stdout.flush()
        return int(code or 0)
    except Exit as end:
        return end.exit_code
    except Abort:
        raise KeyboardInterrupt from None
    except TyperException as error:
        at = getattr(error, "ctx", None)
        name = at.command_path if at else "tidegate"
        print(f"tidegate: {_complaint(error.format_message())}; see `{name} --help`", file=sys.stderr)
        return int(error.exit_code)


def _complaint(message: str) -> str:
    return message.rstrip(".").replace("Value error, ", "").replace("Input should be ", "expected ")


def _refused(error: TidegateError, *, debug: bool) -> int:
    """An error that a person is meant to read."""
    from tidegate.core.text import printable

    if debug:
        _print_traceback(error)
    else:
        print(printable(f"tidegate: {error}" if "\n" not in str(error) else str(error)), file=sys.stderr)
        if error.detail:
            print(printable(error.detail) if _short(error.detail) else "(more with --debug)", file=sys.stderr)
    return int(error.exit_code)


def _missing(error: ModuleNotFoundError, *, debug: bool) -> int:
    from tidegate.core.errors import ExitCode

    if debug:
        _print_traceback(error)
    package = str(error.name).partition(".")[0]
    print(
        f"tidegate: this needs the package {package}, which is not installed here; the image for steps of"
        " workflows has only what they need: run this where tidegate is installed whole",
        file=sys.stderr,
    )
    return ExitCode.OUTSIDE


def _failed_by_system(error: OSError, *, debug: bool) -> int:
    """A file, a folder or a disk that nobody closer to it had a word for."""
    from tidegate.core.errors import ExitCode

    if debug:
        _print_traceback(error)
    why = (error.strerror or str(error) or type(error).__name__).lower()
    print(f"tidegate: {error.filename}: {why}" if error.filename else f"tidegate: {why}", file=sys.stderr)
    return ExitCode.OUTSIDE


def _crashed(bug: Exception, arguments: Sequence[str], *, debug: bool) -> int:
    from tidegate.cli.crash import keep, told
    from tidegate.core.errors import ExitCode
    from tidegate.core.text import printable

    if debug:
        _print_traceback(bug)
    else:
        print(printable(f"tidegate: {told(bug, keep(bug, arguments))}"), file=sys.stderr)
    return ExitCode.INTERNAL


def _print_traceback(error: Exception) -> None:
    import traceback

    traceback.print_exception(error)


def _unread() -> int:
    """Nobody reads our output any more. Python would try to flush it at its end, and complain."""
    from tidegate.core.errors import ExitCode

    # Tests have an output of their own, without a descriptor.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.NO_READER


def _is_ours(module: str | None) -> bool:
    from tidegate.cli.preflight import PACKAGES

    return not module or module.partition(".")[0] in {*PACKAGES, "slo", "tidegate"}


def _short(detail: str) -> bool:
    return detail.count("\n") <= 20
