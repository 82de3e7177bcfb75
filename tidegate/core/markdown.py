"""What others wrote, as Markdown that is read as it is written: it names nobody, links nowhere, loads nothing."""

from __future__ import annotations

import re

from tidegate.core.plain_text import printable

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
