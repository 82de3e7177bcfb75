"""What the engine commands share: the login that a person gives, and printing what is found."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from pydantic import SecretStr

from pipelines.adapters.registry_login import RegistryLogin, registry_of
from tidegate.cli.options import LoginOptions
from tidegate.core.errors import UsageError


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows as columns; the last column is as long as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()


def at_most(lines: Sequence[str], count: int = 20) -> Iterator[str]:
    """The first lines, and how many more there are: a compile cache has hundreds of files."""
    yield from lines[:count]
    if len(lines) > count:
        yield f"  and {len(lines) - count} more: --output json has them all"


def short(digest: str) -> str:
    """The first characters of a digest, enough to tell two apart."""
    return digest.removeprefix("sha256:")[:12]


def login_of(login: LoginOptions, image: str) -> RegistryLogin:
    """How a person told us to speak to registries, by the options of a command and the image that it names.

    Raises:
        UsageError: a user without a password, the reverse, or an image that is in no registry.
    """
    if (login.username is None) is login.password_stdin:
        raise UsageError("--username and --password-stdin belong together", hint="give both, or neither")
    if login.username is None:
        return RegistryLogin(login.insecure)
    registry = registry_of(image)
    return RegistryLogin(login.insecure, registry, login.username, SecretStr(sys.stdin.readline().rstrip("\r\n")))
