"""What commands print: data on stdout, words for people on stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tidegate.core.text import printable


def print_json(data: Mapping[str, object] | Sequence[object]) -> None:
    """One JSON document on stdout."""
    print(json.dumps(data, indent=2, default=str))


def say(text: str) -> None:
    """Text on stdout that holds words of others."""
    print(printable(text), flush=True)
