"""Commands: they build the adapters and hand them down."""

from __future__ import annotations

import sys
from collections.abc import Sequence

CTRL_C = 130
"""What typer makes of a KeyboardInterrupt."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. An error a person is meant to read is one line on stderr."""
    from tidegate.cli.shadowing import refuse_shadowed_packages
    from tidegate.core.errors import TidegateError
    from tidegate.core.plain_text import printable

    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        refuse_shadowed_packages()
        return _run([argument for argument in arguments if argument != "--debug"] or ["--help"])
    except TidegateError as error:
        if debug:
            raise
        print(printable(f"tidegate: {error}" if "\n" not in str(error) else str(error)), file=sys.stderr)
        if error.detail:
            print(printable(error.detail) if _short(error.detail) else "(more with --debug)", file=sys.stderr)
        return int(error.exit_code)
    except ModuleNotFoundError as error:
        if debug or not error.name or _is_ours(error.name):
            raise
        print(f"tidegate: {_missing(error.name)}", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        print("tidegate: stopped", file=sys.stderr)
        return 1


def _is_ours(module: str) -> bool:
    from tidegate.cli.shadowing import PACKAGES

    return module.partition(".")[0] in {*PACKAGES, "slo", "tidegate"}


def _missing(module: str) -> str:
    return (
        f"this needs the package {module.partition('.')[0]}, which is not installed here; the image for steps of"
        " workflows has only what they need: run this where tidegate is installed whole"
    )


def _short(detail: str) -> bool:
    return detail.count("\n") <= 20


def _run(arguments: list[str]) -> int:
    from typer.exceptions import TyperException

    from tidegate.cli.app import app

    try:
        result = app(arguments, prog_name="tidegate", standalone_mode=False)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "tidegate"
        print(f"tidegate: {_complaint(error.format_message())}; see `{command} --help`", file=sys.stderr)
        return int(error.exit_code)
    if result == CTRL_C:
        raise KeyboardInterrupt
    return int(result or 0)


def _complaint(message: str) -> str:
    return message.rstrip(".").replace("Value error, ", "").replace("Input should be ", "expected ")
