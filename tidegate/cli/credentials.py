"""How the caller proves who they are: an SSH key, an OIDC token, or a signature made elsewhere."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pipelines.statements import Proof, Prover, digest_of
from tidegate.core.errors import UsageError

TOKEN = "TIDEGATE_OIDC_TOKEN"
"""The variable that holds a token where there is no file of it."""


COMMAND_SECONDS = 300
"""A command may open a browser, in which a person logs in."""


def prover_of(identity: str | None) -> Prover | None:
    """Who proves it; None where nothing was given.

    Raises:
        UsageError: it is of no kind that is known.
    """
    if identity is None:
        return TokenProver(os.environ[TOKEN]) if os.environ.get(TOKEN) else None
    kind, _, value = identity.partition(":")
    if kind == "ssh" and value:
        from pipelines.adapters.trust import key_prover

        return key_prover(Path(value).expanduser())
    if kind == "oidc" and value:
        return TokenFileProver(Path(value).expanduser())
    if kind == "oidc-cmd" and value:
        return TokenCommandProver(value)
    raise UsageError(f"--identity: found {identity!r}; expected ssh:FILE, oidc:FILE or oidc-cmd:COMMAND")


@dataclass(frozen=True)
class TokenProver:
    """An OIDC token."""

    token: str

    def prove(self, statement: str) -> Proof:
        """Put the token next to the statement."""
        return Proof(kind="oidc", statement=statement, credential=self.token.strip())


@dataclass(frozen=True)
class TokenFileProver:
    """An OIDC token in a file."""

    file: Path

    def prove(self, statement: str) -> Proof:
        """Put the token next to the statement."""
        return TokenProver(read_named_text(self.file, "an OIDC token")).prove(statement)


@dataclass(frozen=True)
class TokenCommandProver:
    """A command that prints an OIDC token for one statement; `{digest}` in it is the statement's digest."""

    command: str

    def prove(self, statement: str) -> Proof:
        """Have a token issued for it."""
        words = [word.replace("{digest}", digest_of(statement)) for word in shlex.split(self.command)]
        try:
            ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=COMMAND_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired, IndexError):
            raise UsageError(
                f"--identity oidc-cmd: {self.command.split(' ')[0]} cannot be run, or did not end",
                hint="try it by hand: it must print a token",
            ) from None
        if ended.returncode != 0 or not ended.stdout.strip():
            raise UsageError(
                f"--identity oidc-cmd: no token; it ended with {ended.returncode}",
                hint="try it by hand: it must print a token",
            )
        return TokenProver(ended.stdout).prove(statement)


@dataclass(frozen=True)
class SignatureProver:
    """A signature that was made elsewhere, such as where the key is."""

    file: Path

    def prove(self, statement: str) -> Proof:
        """Put the signature next to the statement."""
        return Proof(kind="ssh", statement=statement, credential=read_named_text(self.file, "an SSH signature"))


def read_named_text(path: Path, what: str) -> str:
    """The text of a file that was named on the command line.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(
            f"{path}: cannot be read as {what}: {reason}", hint="check its path and its permissions"
        ) from None
