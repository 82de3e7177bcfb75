"""Asks the person at the terminal."""

from __future__ import annotations

import sys

from tidegate.core.errors import Refused, UsageError


def confirm_move(question: str) -> None:
    """Ask whether production may move.

    Raises:
        UsageError: nobody is there.
        Refused: the answer is no.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"production would move ({question}), and nobody can be asked here", hint="add --yes")
    print(f"{question}\nMove production? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was changed")
