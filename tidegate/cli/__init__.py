"""Commands: they build the adapters and hand them down."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from tidegate import __version__

if TYPE_CHECKING:
    from typer import Typer

    from tidegate.cli.command import Root


ALLOCATIONS_BETWEEN_COLLECTIONS = 50_000
"""Instead of 700: what a command reads it keeps, and looking through all of it over and over took half of the time."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Whatever goes wrong is one line on stderr: what happened, what to do."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    code = _main(arguments)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        from tidegate.cli.endings import flushed

        return flushed(code)
    return code


def _open_closed_streams() -> None:
    """Of a process that was started without them (`>&-`): nobody reads, and no file gets their descriptors."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # The lowest free descriptor is that of the first of them.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))


def _main(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    try:
        if arguments == ["--version"]:
            # Before anything is imported: scripts ask often.
            print(f"tidegate {__version__}")
            return 0

        from tidegate.cli.global_options import settings
        from tidegate.core.process import notes_to

        gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)
        with settings() as chosen, notes_to(chosen.note):
            return _run(arguments or ["--help"])
    except KeyboardInterrupt:
        from tidegate.cli.endings import complain
        from tidegate.core.errors import ExitCode

        complain("tidegate: stopped")
        return ExitCode.INTERRUPTED
    # All of them: Python's own exit code for what nobody catches is 1, which says that a gate failed.
    except Exception as error:  # noqa: BLE001
        from tidegate.cli.endings import ended_by

        return ended_by(error, debug=debug)


def _run(arguments: list[str]) -> int:
    from tidegate.cli.preflight import refuse_shadowed_packages

    # Before the commands, which import them.
    refuse_shadowed_packages()

    from typer import Abort, Exit
    from typer.exceptions import TyperException

    from tidegate.cli.completion import VARIABLE, complete

    command = command_tree()
    if VARIABLE in os.environ:
        return complete(command)
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
        from tidegate.cli.endings import complain
        from tidegate.core.text import one_line

        at = getattr(error, "ctx", None)
        name = at.command_path if at else "tidegate"
        complain(one_line(f"tidegate: {_complaint(error.format_message())}; see `{name} --help`"))
        return int(error.exit_code)


def _complaint(message: str) -> str:
    return message.rstrip(".").replace("Value error, ", "").replace("Input should be ", "expected ")


@cache
def command_tree() -> Root:
    """Every command's name, options and help, as they are run."""
    from typer.main import get_group

    return cast("Root", get_group(command_line()))


def command_line() -> Typer:
    """Declare every command; what one does is imported when it is called."""
    from typer import Typer

    from tidegate.cli.audit import audit
    from tidegate.cli.command import Root, add_command
    from tidegate.cli.delivery import approve, deliver, plan, report, resume, rollback, status
    from tidegate.cli.engine import engine
    from tidegate.cli.fleet import fleet, setup
    from tidegate.cli.gate import gate
    from tidegate.cli.model import model
    from tidegate.cli.project import completion, doctor, init, schema
    from tidegate.cli.rollout import rollout
    from tidegate.cli.serve import serve
    from tidegate.cli.slo import slo
    from tidegate.cli.stage import stage
    from tidegate.cli.workflow import workflow

    app = Typer(
        name="tidegate",
        cls=Root,
        help="Deliver a model version to production region by region, and roll it back when it is worse.",
        epilog="Exit codes: 0 delivered, 1 rolled back or gate failed, 2 usage or spec error, 3 inconclusive, "
        "4 something outside was not there, 5 a record is not genuine, 70 a bug in tidegate, 130 stopped by Ctrl-C.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for command in (
        *(init, doctor, setup, completion, plan, deliver, status, approve, resume, rollback, report),
        *(serve, schema, model, engine, rollout, gate, slo, workflow, audit, fleet, stage),
    ):
        add_command(app, command)
    return app
