"""What commands print: data on stdout, words for people on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from tidegate.core.plain_text import printable


def print_json(data: Mapping[str, object] | Sequence[object]) -> None:
    """One JSON document on stdout."""
    print(json.dumps(data, indent=2, default=str))


def note(line: str) -> None:
    """A line for the person who waits; never mixed into data."""
    print(printable(line), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Text on stdout that holds words of others."""
    print(printable(text), flush=True)
