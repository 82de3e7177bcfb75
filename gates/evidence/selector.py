"""How PromQL selects series by their labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tidegate.core.metrics import escaped

NAME = "__name__"
"""The label that holds a series' name."""

PLACE = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")
"""What a query leaves open, written as `{{.version}}`."""


STRING = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)"""
"""PromQL's three kinds; between backticks nothing is an escape."""
COMMENT = r"#[^\n]*(?:\n|\Z)"
_QUOTED = re.compile(f"{COMMENT}|{STRING}")
_SPACE = rf"(?:\s|{COMMENT})*"
_MATCHER = rf"(?:(?:[a-zA-Z_]\w*|{STRING}){_SPACE}(?:=~|!~|!=|=){_SPACE})?{STRING}{_SPACE}"
_SELECTOR = re.compile(
    rf"{_SPACE}(?:[a-zA-Z_:][\w:]*{_SPACE})?\{{{_SPACE}(?:{_MATCHER}(?:,{_SPACE}{_MATCHER})*(?:,{_SPACE})?)?\}}{_SPACE}",
    re.ASCII,
)


def is_selector(query: str) -> bool:
    """Whether it is one selector with its labels, as PromQL reads it, and nothing around it."""
    return _SELECTOR.fullmatch(PLACE.sub("", query)) is not None


def filled_places(query: str, places: Mapping[str, str]) -> str:
    """The query with nothing left open; `places` has a text for each, which ends no string that it stands in."""

    def fill(text: str, written: Callable[[str], str] = escaped) -> str:
        return PLACE.sub(lambda place: written(places[place[1]]), text)

    def quoted(found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith("`") and PLACE.search(text):
            return f'"{escaped(fill(text[1:-1], str))}"'
        return fill(text, lambda value: escaped(value, text[0]))

    parts, end = [], 0
    for found in _QUOTED.finditer(query):
        parts += [fill(query[end : found.start()]), quoted(found)]
        end = found.end()
    return "".join([*parts, fill(query[end:])])


def selector(match: Mapping[str, str], *, like: Mapping[str, str] | None = None) -> str:
    """`{name="value",other=~"expression",...}`; those in `like` are regular expressions."""
    pairs = [f'{name}="{escaped(value)}"' for name, value in match.items()]
    pairs += [f'{name}=~"{escaped(value)}"' for name, value in (like or {}).items()]
    return "{" + ",".join(pairs) + "}"
