"""Completion in shells: the scripts that ask, and the answers; both are Typer's."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Any

from typer._completion_classes import completion_init
from typer.completion import shell_complete

VARIABLE = "_TIDEGATE_COMPLETE"
"""Set by the scripts while a shell asks what may come next."""


class Shell(StrEnum):
    """Those that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def complete(root: Any) -> int:
    """Answer the shell that set the variable: what may stand at the cursor, one a line."""
    return _ask(root, os.environ[VARIABLE])


def print_script(root: Any, shell: Shell) -> int:
    """Print what a shell reads once."""
    return _ask(root, f"source_{shell.value}")


def _ask(root: Any, instruction: str) -> int:
    completion_init()
    return shell_complete(root, {}, "tidegate", VARIABLE, instruction)
