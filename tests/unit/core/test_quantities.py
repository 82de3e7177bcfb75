"""Quantities carry their unit in, and out again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from tidegate.core.model import SpecModel
from tidegate.core.quantities import Duration, Percent, PercentagePoints, format_duration, parse_duration


class Margins(SpecModel):
    wait: Duration
    increase: Percent
    points: PercentagePoints


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("30s", 30), ("1.5s", 1.5), ("10m", 600), ("2h", 7200), ("30d", 2592000)]
)
def test_a_duration_is_read_and_written_alike(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert format_duration(parse_duration(text)) == text


@pytest.mark.parametrize("text", ["5", "5 s", "s", "-5s", "5y", "", "1e3s"])
def test_a_duration_without_a_known_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration(text)


def test_percents_and_points_are_fractions_in_code_and_text_in_json() -> None:
    margins = Margins.model_validate({"wait": "90s", "increase": "20%", "points": "0.5pp"})
    assert (margins.increase, margins.points) == (0.2, 0.005)
    assert margins.model_dump(mode="json") == {"wait": "90s", "increase": "20%", "points": "0.5pp"}


@pytest.mark.parametrize(("increase", "points"), [("20", "1pp"), ("20pp", "1pp"), ("20%", "1%"), (20, "1pp")])
def test_a_percent_is_not_a_percentage_point_nor_a_bare_number(increase: object, points: object) -> None:
    with pytest.raises(ValidationError):
        Margins.model_validate({"wait": "1s", "increase": increase, "points": points})


def test_the_schema_tells_editors_what_to_write() -> None:
    properties = Margins.model_json_schema()["properties"]
    assert properties["wait"]["pattern"].endswith("(ms|s|m|h|d)$")
    assert properties["increase"]["pattern"].endswith("%$")
