"""Words that the engine commands share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidegate.core.errors import UsageError

DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows as columns; the last column is as long as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()


def at_most(lines: Sequence[str], count: int = 20) -> Iterator[str]:
    """The first lines, and how many more there are: a compile cache has hundreds of files."""
    yield from lines[:count]
    if len(lines) > count:
        yield f"  and {len(lines) - count} more: --output json has them all"


def in_bytes(size: int) -> str:
    """A size as people say it: `1.2 GB`."""
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def short(digest: str) -> str:
    """The first characters of a digest, enough to tell two apart."""
    return digest.removeprefix("sha256:")[:12]


def shortened(text: str) -> str:
    """`text`, or its short form when it is a digest."""
    return short(text) if DIGEST.fullmatch(text) else text


def read_key(path: Path) -> bytes:
    """The content of a key file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
