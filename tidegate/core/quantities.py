"""Quantities that carry their unit: percents and percentage points (durations are in `tidegate.core.durations`).

A spec says `20%` or `0.5pp`, never a bare number whose unit the reader must guess. In code a percent and a
percentage point are fractions (`20%` is 0.2). Where a field's bare number has one meaning only, such as a weight
of 25 or a score of 0.6, the percent says the same.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, WithJsonSchema

FROM_FILE = "from_file"
"""Key of the validation context that is true while a file is read."""

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%")
_POINTS = re.compile(r"(\d+(?:\.\d+)?)pp")


def _fraction(pattern: re.Pattern[str], example: str) -> BeforeValidator:
    def parse(value: Any, info: ValidationInfo) -> float:
        # In code a share is a plain float; in a file a bare number would leave its unit to be guessed.
        if isinstance(value, float) and not (info.context or {}).get(FROM_FILE):
            return value
        match = pattern.fullmatch(str(value))
        if match is None:
            raise ValueError(example)
        return float(match[1]) / 100

    return BeforeValidator(parse)


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
    match = _PERCENT.fullmatch(value)
    if match is None:
        raise ValueError("a percent such as 25 or 25%")
    number = float(match[1])
    return int(number) if number.is_integer() else number


def share_too(value: Any) -> Any:
    """`60%` and `3pp` as 0.6 and 0.03, for numbers in 0 to 1; everything else as it is.

    Raises:
        ValueError: for a text that is neither.
    """
    if not isinstance(value, str):
        return value
    match = _PERCENT.fullmatch(value) or _POINTS.fullmatch(value)
    if match is None:
        raise ValueError("a share such as 0.03, 3% or 3pp")
    return float(match[1]) / 100


PercentText = Annotated[str, Field(pattern=f"^{_PERCENT.pattern}$")]
"""For schemas: how a percent is written."""
ShareText = Annotated[str, Field(pattern=r"^(\d+(?:\.\d+)?)(%|pp)$")]
"""For schemas: how a share is written, when not as a number."""
