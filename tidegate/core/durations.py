"""Durations as text: how a spec writes them (`90s`, `1.5h`), and how Prometheus (`1m30s`, `4w`) and Go do.

The first two are numbers with units, from large to small, each unit once: `1h30m`. A spec may also say a part of a
unit, and has no weeks or years; Prometheus has both, and whole numbers only. Go, and so Argo, takes units in any
order. In code a duration is a `timedelta`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema


def duration(seconds: float) -> str:
    """A duration at the precision a person cares for: `85 ms`, `1.25 s`, `42 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


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


def _pattern(number: str, units: Iterable[str]) -> re.Pattern[str]:
    return re.compile("".join(rf"(?:(?P<{unit}>{number}){unit})?" for unit in units))


_OF_SPECS = _pattern(r"\d+(?:\.\d+)?", ("d", "h", "m", "s", "ms"))
_OF_PROMETHEUS = _pattern(r"\d+", _UNITS)
_PART_OF_GO = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")
_GO_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(value: object) -> timedelta:
    """Read `250ms`, `30s`, `1.5h`, `1h30m`, `30d`.

    Raises:
        ValueError: when there is no number or no known unit.
    """
    return _parsed(value, _OF_SPECS, "a duration such as 250ms, 30s, 10m, 2h or 30d")


def format_duration(value: timedelta) -> str:
    """The shortest text of one unit that `parse_duration` reads back as the same duration."""
    for unit in ("d", "h", "m", "s"):
        count = value / _UNITS[unit]
        if count >= 1 and count.is_integer():
            return f"{count:.0f}{unit}"
    seconds = value.total_seconds()
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"


def parse_prometheus_duration(value: object) -> timedelta:
    """Read `5m`, `1h30m`, `30d`, `4w`, and nothing that Prometheus would refuse.

    Raises:
        ValueError: when it is no such text.
    """
    return _parsed(value, _OF_PROMETHEUS, "a duration as Prometheus writes it, such as 5m, 1h30m or 30d")


def parse_go_duration(text: str) -> timedelta:
    """Read what Go's `time.ParseDuration` reads: `1h30m`, `1.5h`, `.5s`, `90m30s`, `100us`, in any order.

    Raises:
        ValueError: when it is no such text.
    """
    parts = _PART_OF_GO.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("a duration as Go writes it, such as 90s or 1h30m")
    return timedelta(seconds=sum(float(number) * _GO_SECONDS[unit] for number, unit in parts))


def read_retry_after(header: object) -> float | None:
    """The seconds that HTTP's `Retry-After` asks for; None where it is absent or a date."""
    return float(str(header)) if str(header).isdecimal() else None


@lru_cache(1024)
def prometheus_duration(value: timedelta) -> str:
    """As Prometheus writes it, to the millisecond; every text has one meaning and every length one text.

    Names of recorded series end in such a text: 28 days are `4w`, 30 days are `30d`.
    """
    text, rest = "", value
    for unit, length in _UNITS.items():
        if unit in _ONLY_WHOLE and rest % length:
            continue
        count, rest_below = divmod(rest, length)
        if count:
            text, rest = f"{text}{count}{unit}", rest_below
    return text or "0s"


def _parsed(value: object, pattern: re.Pattern[str], expected: str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    match = pattern.fullmatch(str(value))
    if not match or not match[0]:
        raise ValueError(expected)
    counts = {unit: float(count) for unit, count in match.groupdict().items() if count}
    try:
        return sum((count * _UNITS[unit] for unit, count in counts.items()), timedelta())
    except OverflowError as error:
        raise ValueError(f"{expected}, of a thousand millennia at most") from error


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^(\d+(?:\.\d+)?(ms|s|m|h|d))+$"}),
]
PrometheusDuration = Annotated[
    timedelta, BeforeValidator(parse_prometheus_duration), PlainSerializer(prometheus_duration, when_used="json")
]
