"""Text from elsewhere, made safe to show: on a terminal, in a log, as Markdown, and addresses without their secrets.

Look here before anything that somebody else wrote (a model's name, a server's answer, a URL) is printed or kept.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from tidegate.core.errors import without_credentials

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 but tabs and line ends, and what turns the direction of writing round."""


def printable(text: str) -> str:
    """`text` without what moves a cursor, sets a title, or shows words in another order than they stand."""
    return _STEERING.sub("", text)


def one_line(text: str) -> str:
    """As `printable`, in one line: CI systems read commands at the beginning of a line."""
    return " ".join(printable(text).splitlines())


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


_WHAT = re.compile(r"[?#].*", re.DOTALL)


def redacted(uri: str) -> str:
    """`uri` without a name and password, a query and a fragment."""
    return _WHAT.sub("", without_credentials(uri))


def host_of(uri: str) -> str:
    """HOST, or HOST:PORT, as an address names it; the address as it is shown when it names none."""
    parts = urlsplit(uri)
    if parts.hostname is None:
        return redacted(uri)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host if parts.port is None else f"{host}:{parts.port}"


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


def code_cell(text: str) -> str:
    """As `table_cell`, all of it as code; a bar, which would end the cell, stands as the one that is broken."""
    return _code(" ".join(printable(text).split()).replace("|", "\u00a6") or "-")


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
