"""Durations that options name."""

from __future__ import annotations

from tidegate.core.errors import UsageError
from tidegate.core.quantities import parse_duration


def seconds(text: str, option: str) -> float:
    """How many an option means.

    Raises:
        UsageError: when it means none.
    """
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise UsageError(f"{option}: found {text!r}; expected {error}") from error
