"""Completion in shells: the scripts that ask, and the answers; both are Typer's."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Any

from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.completion import shell_complete

PROGRAM = "tidegate"
ZSH_SOURCED = "compdef _tidegate_completion tidegate"
ZSH_EITHER = f"""if [[ "${{zsh_eval_context[-1]}}" == loadautofunc ]]; then
  _tidegate_completion "$@"
else
  {ZSH_SOURCED}
fi"""
VARIABLE = "_TIDEGATE_COMPLETE"
"""Set by the scripts while a shell asks what may come next."""


class Shell(StrEnum):
    """Those that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def complete(root: Any) -> int:
    """Answer the shell that set the variable: what may stand at the cursor, one a line."""
    completion_init()
    return shell_complete(root, {}, PROGRAM, VARIABLE, os.environ[VARIABLE])


def print_script(shell: Shell) -> int:
    """Print what a shell reads once."""
    completion_init()
    script = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value).strip()
    # Typer's ends with a call that serves a sourced file alone; compinit loads a file in `fpath` at the first Tab.
    print(script.replace(ZSH_SOURCED, ZSH_EITHER))
    return 0
