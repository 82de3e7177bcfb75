"""Strings of PromQL, as promql_parser has to be given them."""

from __future__ import annotations

import re

_STRING = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?P<raw>[^`]*)`""", re.DOTALL)


def without_raw_strings(query: str) -> str:
    """Return `query` with every raw string in double quotes: the library takes what is between backticks for escapes.

    https://prometheus.io/docs/prometheus/latest/querying/basics/#string-literals
    """
    return _STRING.sub(lambda found: found[0] if found["raw"] is None else f'"{escaped(found["raw"])}"', query)


def escaped(text: str, quote: str = '"') -> str:
    """Return `text` as it stands between two of `quote`, which is `"` or `'`."""
    return text.replace("\\", "\\\\").replace(quote, f"\\{quote}").replace("\n", "\\n")
