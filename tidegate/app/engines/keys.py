"""Keys that a person names."""

from __future__ import annotations

from pathlib import Path

from tidegate.core.errors import UsageError


def read_key(path: Path) -> bytes:
    """The content of a key file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
