"""How the caller proves who they are: `--identity`, by an SSH key or an OIDC token."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from pipelines.statements import Proof, Prover, digest_of
from tidegate.core.errors import UsageError

COMMAND_SECONDS = 300
"""A command may open a browser, in which a person logs in."""


def prover_of(identity: str | None) -> Prover | None:
    """Who proves it; None where nothing was given.

    Raises:
        UsageError: it is of no kind that is known.
    """
    if identity is None:
        return None
    kind, _, value = identity.partition(":")
    if kind == "ssh" and value:
        # Not above: it loads what checks tokens, which few commands need.
        from pipelines.authority.identities import sign

        return lambda statement: sign(statement, Path(value).expanduser())
    if kind == "oidc-cmd" and value:
        return lambda statement: Proof(kind="oidc", statement=statement, credential=_token_from(value, statement))
    raise UsageError(f"--identity: found {identity!r}; expected ssh:FILE or oidc-cmd:COMMAND")


def _token_from(command: str, statement: str) -> str:
    """What a command prints that has a token issued for one statement; `{digest}` in it is the statement's."""
    hint = "try it by hand: it must print a token"
    words = [word.replace("{digest}", digest_of(statement)) for word in shlex.split(command)]
    try:
        ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired, IndexError):
        name = command.split(" ", maxsplit=1)[0]
        raise UsageError(f"--identity oidc-cmd: {name} cannot be run, or did not end", hint=hint) from None
    if ended.returncode != 0 or not ended.stdout.strip():
        raise UsageError(f"--identity oidc-cmd: no token; it ended with {ended.returncode}", hint=hint)
    return ended.stdout.strip()
