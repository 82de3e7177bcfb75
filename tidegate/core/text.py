"""Text from elsewhere, made safe to show: on a terminal, in a log, as Markdown, and addresses without their secrets.

Look here before anything that somebody else wrote (a model's name, a server's answer, a URL) is printed or kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from tidegate.core.errors import TidegateError

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 but tabs and line ends, and what turns the direction of writing round."""


_COMMAND = re.compile(r"^[^\S\n]*:(?=:)|#(?=#(?:vso|teamcity)?\[)", re.MULTILINE)
"""How GitHub (also behind blanks), Azure Pipelines and TeamCity find a command in what a job prints."""


def printable(text: str) -> str:
    """`text` without what moves a cursor, sets a title, turns words round; what CI takes for a command gets a blank."""
    return _COMMAND.sub(r"\g<0> ", _STEERING.sub("", text))


def one_line(text: str) -> str:
    """As `printable`, in one line."""
    return printable(" ".join(_STEERING.sub("", text).splitlines()))


def lines_of(text: str) -> list[str]:
    """The lines of a text, which a line feed ends, or a carriage return and a line feed, and nothing else.

    `str.splitlines` also ends them at U+0085, U+2028 and others, which JSON and prompts may hold as they are.
    """
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


LONGEST = 200
"""Characters of what is wrong with words of others."""


def shortened(text: str) -> str:
    """`text`, or its beginning when it is long."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def failure_line(error: Exception) -> str:
    """What a parser made of words of others, in one line that is not long."""
    return one_line(f"{type(error).__name__}: {error}")[:LONGEST]


@contextmanager
def foreign(refused: Callable[[str], TidegateError]) -> Iterator[None]:
    """Read what somebody else wrote, of whose shape nothing is known: whatever parsing it raises is its source's error.

    Args:
        refused: makes that error of what is wrong, in one line.
    """
    try:
        yield
    except (TidegateError, OSError):
        raise
    except Exception as error:
        raise refused(failure_line(error)) from error


def json_of(text: str | bytes) -> Any:
    """What JSON of somebody else says.

    Raises:
        ValueError: it is none, or is nested too deep, or has a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


_SCHEME = re.compile(r"[A-Za-z][\w+.-]*")


def parsed(uri: str) -> SplitResult | None:
    """The parts of an address; None when it has no scheme, or none can say where its password ends."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    # A password with `/`, `?` or `#` in it ends the host's part too early.
    ambiguous = parts.netloc and "@" in parts.path + parts.query + parts.fragment
    return None if ambiguous or not parts.scheme else parts


def redacted(uri: str) -> str:
    """Scheme, host, port and path of an address, nothing that may be a secret; the scheme alone if it cannot be parsed.

    Text without `://`, such as a path, stays as it is.
    """
    scheme, separator, _ = uri.partition("://")
    if not separator:
        return uri
    parts = parsed(uri)
    if parts is None:
        return f"{scheme}://***" if _SCHEME.fullmatch(scheme) else "***"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def host_of(uri: str) -> str:
    """HOST, or HOST:PORT, as an address names it; the address as it is shown when it names none."""
    parts = parsed(uri)
    return parts.netloc.rpartition("@")[2].lower() if parts and parts.hostname else redacted(uri)


def is_loopback(host: str) -> bool:
    """Whether a host, a name or an IP address without brackets, is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_MARKUP = re.compile(r"([\\|<>*_`\[\]])")
# People, addresses, mail, issues and merge requests, as GitHub and GitLab find them outside code.
_LIVELY = re.compile(r"[^\s|]*(?:(?<!\w)@\w|://|\bwww\.|\w@[\w-]+\.\w|#\d|(?<!\w)!\d|\bGH-\d)[^\s|]*", re.IGNORECASE)


def table_cell(text: str) -> str:
    """One line of Markdown, also within a table. A word that would become a link or a mention stands as code."""
    line, told, end = " ".join(printable(text).split()), "", 0
    for found in _LIVELY.finditer(line):
        told += _MARKUP.sub(r"\\\1", line[end : found.start()]) + _code(found[0])
        end = found.end()
    return told + _MARKUP.sub(r"\\\1", line[end:])


def _code(word: str) -> str:
    """A code span; its fence is longer than any run of backticks in it."""
    fence = "`" * (max(map(len, re.findall("`+", word)), default=0) + 1)
    inside = f" {word} " if "`" in word else word
    return f"{fence}{inside}{fence}"


def in_bytes(size: int) -> str:
    """A size as people say it: `1.2 GB`."""
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows as columns; the last column is as long as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
