"""How PromQL selects series by their labels."""

from __future__ import annotations

from collections.abc import Mapping

NAME = "__name__"
"""The label that holds a series' name."""


def selector(match: Mapping[str, str], *, regex: str = "") -> str:
    """`{name="value",...}`; the label `regex` is matched as an expression."""
    pairs = (f'{name}{"=~" if name == regex else "="}"{_escaped(value)}"' for name, value in match.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
