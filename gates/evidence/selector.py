"""How PromQL selects series by their labels."""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = "__name__"
"""The label that holds a series' name."""

PLACE = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")
"""What a query leaves open, written as `{{.version}}`."""


def filled_places(query: str, places: Mapping[str, str]) -> str:
    """The query with nothing left open; `places` has a text for each."""
    return PLACE.sub(lambda place: _escaped(places[place[1]]), query)


def selector(match: Mapping[str, str], *, like: Mapping[str, str] | None = None) -> str:
    """`{name="value",other=~"expression",...}`; those in `like` are regular expressions."""
    pairs = [f'{name}="{_escaped(value)}"' for name, value in match.items()]
    pairs += [f'{name}=~"{_escaped(value)}"' for name, value in (like or {}).items()]
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
