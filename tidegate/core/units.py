"""Quantities that carry their unit: durations, percents and percentage points.

A spec says `90s`, `20%` or `0.5pp`, never a bare number whose unit the reader must guess. In code a duration is a
`timedelta`, a percent and a percentage point are fractions (`20%` is 0.2). Where a field's bare number has one meaning
only, such as a weight of 25 or a score of 0.6, the percent says the same.

Durations are numbers with units, from large to small, each unit once: `1h30m`. A spec may also say a part of a unit,
and has no weeks or years; Prometheus has both, and whole numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, WithJsonSchema


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


FROM_FILE = "from_file"
"""Key of the validation context that is true while a file is read."""

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%")
_POINTS = re.compile(r"(\d+(?:\.\d+)?)pp")


def _fraction(pattern: re.Pattern[str], example: str) -> BeforeValidator:
    def parse(value: Any, info: ValidationInfo) -> float:
        # In code a share is a plain float; in a file a bare number would leave its unit to be guessed.
        if isinstance(value, float) and not (info.context or {}).get(FROM_FILE):
            return value
        return _number(str(value), example, pattern) / 100

    return BeforeValidator(parse)


def _number(text: str, example: str, *patterns: re.Pattern[str]) -> float:
    for pattern in patterns:
        if match := pattern.fullmatch(text):
            return float(match[1])
    raise ValueError(example)


def _text(pattern: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern}$"})


Percent = Annotated[
    float,
    _fraction(_PERCENT, "a percent such as 20%"),
    PlainSerializer(lambda share: f"{share * 100:.12g}%", return_type=str, when_used="json"),
    _text(_PERCENT),
]
PercentagePoints = Annotated[
    float,
    _fraction(_POINTS, "percentage points such as 0.5pp"),
    PlainSerializer(lambda share: f"{share * 100:.12g}pp", return_type=str, when_used="json"),
    _text(_POINTS),
]


def percent_too(value: Any) -> Any:
    """`25%` as 25, for numbers that count percent; everything else as it is.

    Raises:
        ValueError: for a text that is no percent.
    """
    if not isinstance(value, str):
        return value
    number = _number(value, "a percent such as 25 or 25%", _PERCENT)
    return int(number) if number.is_integer() else number


def share_too(value: Any) -> Any:
    """`60%` and `3pp` as 0.6 and 0.03, for numbers in 0 to 1; everything else as it is.

    Raises:
        ValueError: for a text that is neither.
    """
    if not isinstance(value, str):
        return value
    return _number(value, "a share such as 0.03, 3% or 3pp", _PERCENT, _POINTS) / 100


PercentText = Annotated[str, Field(pattern=f"^{_PERCENT.pattern}$")]
"""For schemas: how a percent is written."""
ShareText = Annotated[str, Field(pattern=r"^(\d+(?:\.\d+)?)(%|pp)$")]
"""For schemas: how a share is written, when not as a number."""


def _quantile(value: object) -> object:
    if isinstance(value, str) and (percentile := re.fullmatch(r"[pP](\d+(?:\.\d+)?)", value)):
        raise ValueError(f"{float(percentile[1]) / 100:g}")
    return value


Quantile = Annotated[float, Field(gt=0, lt=1), BeforeValidator(_quantile)]
"""In 0 to 1; one who writes p95 is told 0.95."""
