"""What others wrote, as a terminal or a log may show it: text, and nothing that steers."""

from __future__ import annotations

import re

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 but tabs and line ends, and what turns the direction of writing round."""


def printable(text: str) -> str:
    """`text` without what moves a cursor, sets a title, or shows words in another order than they stand."""
    return _STEERING.sub("", text)


def one_line(text: str) -> str:
    """As `printable`, in one line: CI systems read commands at the beginning of a line."""
    return " ".join(printable(text).splitlines())
