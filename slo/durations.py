"""Durations as Prometheus reads and writes them: `5m`, `1h30m`, `4w`.

Names of recorded series end in such a text, so it has to be Prometheus' own: 28 days are `4w`, 30 days are `30d`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_UNITS = {
    "y": timedelta(days=365),
    "w": timedelta(days=7),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_ONLY_WHOLE = {"y", "w"}
"""Not mixed with smaller units, because 90d reads easier than 12w6d."""

_TEXT = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS))


def parse_prometheus_duration(value: object) -> timedelta:
    """Read `5m`, `1h30m`, `30d`, `4w`: units from large to small, each once.

    Raises:
        ValueError: when it is no such text.
    """
    if isinstance(value, timedelta):
        return value
    match = _TEXT.fullmatch(str(value))
    if not match or not any(match.groups()):
        raise ValueError("a duration as Prometheus writes it, such as 5m, 1h30m or 30d")
    try:
        counts = zip(match.groups(default="0"), _UNITS.values(), strict=True)
        return sum((int(count) * unit for count, unit in counts), timedelta())
    except OverflowError as error:
        raise ValueError("a duration that ends before the universe does") from error


def prometheus_duration(value: timedelta) -> str:
    """As Prometheus writes it, to the millisecond; every text has one meaning and every length one text."""
    text, rest = "", value
    for unit, length in _UNITS.items():
        if unit in _ONLY_WHOLE and rest % length:
            continue
        count, rest_below = divmod(rest, length)
        if count:
            text, rest = f"{text}{count}{unit}", rest_below
    return text or "0s"


PrometheusDuration = Annotated[
    timedelta, BeforeValidator(parse_prometheus_duration), PlainSerializer(prometheus_duration, when_used="json")
]
