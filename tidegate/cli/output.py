"""What commands print: data on stdout, words for people on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence


def print_json(data: Mapping[str, object] | Sequence[object]) -> None:
    """One JSON document on stdout."""
    print(json.dumps(data, indent=2, default=str))


def note(line: str) -> None:
    """A line for the person who waits; never mixed into data."""
    print(line, file=sys.stderr, flush=True)
