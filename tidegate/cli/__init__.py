"""Commands: they build the adapters and hand them down."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer


ALLOCATIONS_BETWEEN_COLLECTIONS = 50_000
"""Instead of 700: what a command reads it keeps, and looking through all of it over and over took half of the time."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Whatever goes wrong is one line on stderr: what happened, what to do."""
    from tidegate.app.process import notes_to
    from tidegate.core.errors import ExitCode

    gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)
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
        from tidegate.cli.endings import ended_by

        return ended_by(error, arguments, debug=debug)


def _to_stderr(line: str) -> None:
    from tidegate.core.text import printable

    print(printable(line), file=sys.stderr, flush=True)


def _run(arguments: list[str]) -> int:
    from tidegate.cli.preflight import refuse_shadowed_packages

    # Before the commands, which import them.
    refuse_shadowed_packages()

    from typer import Abort, Exit
    from typer.exceptions import TyperException
    from typer.main import get_command

    command = get_command(command_line())
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


def command_line() -> Typer:
    """Every command's name, options and help; what a command does is imported when it is called."""
    from typer import Typer

    from tidegate.cli.groups.audit import audit
    from tidegate.cli.groups.delivery import approve, deliver, plan, report, resume, rollback, status
    from tidegate.cli.groups.engine import engine
    from tidegate.cli.groups.fleet import fleet, setup, traffic
    from tidegate.cli.groups.gate import gate
    from tidegate.cli.groups.model import model
    from tidegate.cli.groups.project import doctor, init, notify, schema
    from tidegate.cli.groups.rollout import rollout
    from tidegate.cli.groups.serve import serve
    from tidegate.cli.groups.slo import slo
    from tidegate.cli.groups.stage import stage
    from tidegate.cli.groups.workflow import workflow

    app = Typer(
        name="tidegate",
        help="Take a model version to every production region, a little traffic at a time, and back when it is worse.",
        epilog="Exit codes: 0 delivered, 1 rolled back or gate failed, 2 usage or spec error, 3 inconclusive, "
        "4 something outside was not there, 5 a record is not genuine, 70 a bug in tidegate, 130 stopped by Ctrl-C. "
        "Add --debug to any command for the whole error.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for group in (fleet, model, gate, slo, engine, rollout, stage, workflow, audit):
        app.add_typer(group)
    for command in (serve, deliver, resume, approve, plan, status, rollback, report, traffic):
        app.command()(command)
    for command in (init, schema, doctor, setup, notify):
        app.command()(command)
    return app
