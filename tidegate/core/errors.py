"""What can go wrong, and the exit code that says so.

    TidegateError
    ├── UsageError     2   asked for something that cannot be
    │   ├── SpecError      a file is wrong; carries every problem found in it
    │   └── Refused        right in itself, but not now (another delivery runs, too little memory)
    ├── Interrupted  130   a person or the system asked us to stop; the delivery was rolled back
    ├── OutsideError   4   registry, Prometheus, proxy, engine: something outside was not there
    └── NotGenuine     5   a record is not what was written: changed, inserted, removed, or signed by nobody known

A message is one line that says what happened; `hint` says what to do about it. An `OSError` that reaches
the end of a command is a file or a disk that did not do its part (4). Anything else is a bug in tidegate (70),
never 1: its traceback is printed without secrets.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What every command promises to its caller."""

    DELIVERED = 0
    """Or: the command did what it says."""
    ROLLED_BACK = 1
    """A gate failed; rolled back."""
    USAGE = 2
    """Wrong usage or spec, or refused for now: whatever runs goes on as before."""
    INCONCLUSIVE = 3
    """The evidence did not suffice; rolled back."""
    OUTSIDE = 4
    """Registry, Prometheus, proxy, engine, disk: something outside was not there, or failed."""
    NOT_GENUINE = 5
    """A record of the delivery is not what was written; whatever stands on it was not done."""
    INTERNAL = 70
    """A bug in tidegate, as `EX_SOFTWARE` of sysexits.h; says nothing about the version."""
    INTERRUPTED = 130
    """Asked to stop by a signal, or a terminal that closed; what was delivered is rolled back. As shells say it."""
    NO_READER = 141
    """Nobody reads the output any more, as behind `| head`; as shells say it of SIGPIPE."""


_REST = re.compile(r"(?<=://)[^\s\"<>]+")
"""Of an address in a text, all behind its scheme; a quote may belong to a password."""
_AUTHORITY = re.compile(r"[^/?#]*")
_PORT = re.compile(r"[^:]*(:\d*)?['.,;)\]]*|\[.*")
_VALUE = re.compile(r"([?&#][^=&#\s\"'<>]*=)[^&#\s\"'<>]+")


_LONG = re.compile(r"(\S{200})\S+")


def _legible(text: str) -> str:
    """Without credentials of addresses, and without the rest of a word that nobody reads to its end."""
    return _LONG.sub(r"\1...", without_credentials(text))


def without_credentials(text: str) -> str:
    """Cut names, passwords and values of queries out of the addresses in a text of others.

    Use `tidegate.core.text.redacted` for an address as such: in a text nobody knows where a password with a space ends.
    """
    return _REST.sub(lambda rest: _VALUE.sub(r"\1***", _without_user(rest[0])), text)


def _without_user(rest: str) -> str:
    """Nobody need encode the `/`, `?` and `#` of a password: what cannot be a port is one."""
    authority = _AUTHORITY.match(rest)[0]  # type: ignore[index]  # it matches anything
    if "@" in authority:
        return authority.rpartition("@")[2] + rest[len(authority) :]
    return rest if _PORT.fullmatch(authority) else rest.rpartition("@")[2]


class TidegateError(Exception):
    """The base of every error a person is meant to read."""

    exit_code: ClassVar[ExitCode] = ExitCode.OUTSIDE
    has_places: ClassVar[bool] = False
    """Whether each line of the message begins with its `FILE:LINE:`, for editors and CI."""

    def __init__(self, message: str, *, hint: str | None = None, detail: str | None = None) -> None:
        """`message` is the one line; `hint` what to do; `detail` the rest, shown with `--debug`.

        An error goes into logs, ledgers and reports: no name and password of an address in it gets that far.
        """
        self.message = _legible(message)
        self.hint = hint and _legible(hint)
        self.detail = detail and without_credentials(detail)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(TidegateError):
    """The caller asked for something that cannot be."""

    exit_code = ExitCode.USAGE


class Refused(UsageError):
    """Right in itself, but not now: nothing was changed."""


class Interrupted(TidegateError):
    """Asked to stop before the end."""

    exit_code = ExitCode.INTERRUPTED


class OutsideError(TidegateError):
    """Something that tidegate depends on was not there or did not do its part."""


class NotGenuine(TidegateError):
    """A record is not what was written by those who may write it."""

    exit_code = ExitCode.NOT_GENUINE
