"""Options that are durations: `30s`, `10m`, `2h`."""

from __future__ import annotations

from datetime import timedelta

import typer

from tidegate.core.units import format_duration, parse_duration


class Duration(timedelta):
    """Shown as a person writes it."""

    def __str__(self) -> str:
        return format_duration(self) if self else "0s"


def duration(value: str | timedelta) -> Duration:
    """The parser of such an option; its default is one already.

    Raises:
        BadParameter: when the text means none.
    """
    try:
        read = value if isinstance(value, timedelta) else parse_duration(value)
    except ValueError as error:
        raise typer.BadParameter(f"found {value!r}; expected {error}") from error
    return Duration(seconds=read.total_seconds())
