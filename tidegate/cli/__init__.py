"""Commands: they build the adapters and hand them down."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
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
    for name in ("stdin", "stdout", "stderr"):
        # A process that was started without them (`>&-`): nobody reads, and no file gets their descriptors, of which
        # the lowest free one is that of the first of them.
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    debug = "--debug" in arguments
    try:
        code = _run(arguments or ["--help"])
    # All of them: Python's own exit code for what nobody catches is 1, which says that a gate failed.
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
        code = _ended_by(error, debug=debug)
    # Python would try again at its end, and make 120 of what fails.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if stream is sys.stdout:
                code = code or _ended_by(error)
            # Tests have an output of their own, without a descriptor.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _ended_by(error: BaseException, *, debug: bool = False) -> int:
    from tidegate.cli.endings import ended_by

    return ended_by(error, debug=debug)


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        # Before anything is imported: scripts ask often.
        print(f"tidegate {__version__}")
        return 0
    from tidegate.cli.settings import settings
    from tidegate.core.process import notes_to

    gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)
    command = command_tree()
    if "_TIDEGATE_COMPLETE" in os.environ:
        from tidegate.cli.project import complete

        return complete(command)
    # Not `app(...)`: that makes exit codes of what `endings` tells apart.
    with settings() as chosen, notes_to(chosen.note), command.make_context("tidegate", arguments) as context:
        return int(command.invoke(context) or 0)


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
        *(serve, schema, model, engine, rollout, gate, slo, audit, fleet, stage),
    ):
        add_command(app, command)
    return app
