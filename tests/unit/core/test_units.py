"""Quantities carry their unit in, and out again: durations as specs and Prometheus write them, percents and points."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from tidegate.core.model import SpecModel
from tidegate.core.units import (
    Duration,
    Percent,
    PercentagePoints,
    format_duration,
    parse_duration,
    parse_prometheus_duration,
    prometheus_duration,
    read_retry_after,
)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(minutes=5), "5m"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(hours=72), "3d"),
        (timedelta(days=7), "1w"),
        (timedelta(days=28), "4w"),
        (timedelta(days=30), "30d"),
        (timedelta(days=90), "90d"),
        (timedelta(days=365), "1y"),
        (timedelta(days=7, milliseconds=1), "7d1ms"),
        (timedelta(), "0s"),
    ],
)
def test_a_duration_is_written_as_prometheus_writes_it(length: timedelta, text: str) -> None:
    assert prometheus_duration(length) == text
    assert parse_prometheus_duration(text) == length


@pytest.mark.parametrize("text", ["", "5", "m", "5M", "1.5h", "1m1h", "-5m", "5m ", "9999999999999999y"])
def test_what_prometheus_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration"):
        parse_prometheus_duration(text)


@pytest.mark.parametrize(
    ("text", "seconds", "shortest"),
    [
        ("250ms", 0.25, "250ms"),
        ("1.5s", 1.5, "1.5s"),
        ("2h", 7200, "2h"),
        ("1h30m", 5400, "90m"),
        ("1d12h", 129600, "36h"),
    ],
)
def test_a_duration_is_read_and_written(text: str, seconds: float, shortest: str) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert format_duration(parse_duration(text)) == shortest


@pytest.mark.parametrize("text", ["5", "5 s", "s", "-5s", "", "1e3s", "1m1h", "1h 30m", "1h1h", "1w", "9" * 400 + "d"])
def test_units_that_are_unknown_out_of_order_or_too_large_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("header", "seconds"), [("2", 2), (3, 3), (None, None), ("-1", None), ("Fri, 13 Nov 2026 09:00:00 GMT", None)]
)
def test_a_server_asks_for_a_pause_in_seconds(header: object, seconds: float | None) -> None:
    assert read_retry_after(header) == seconds


class Margins(SpecModel):
    wait: Duration
    increase: Percent
    points: PercentagePoints


def test_percents_and_points_are_fractions_in_code_and_text_in_json() -> None:
    margins = Margins.model_validate({"wait": "90s", "increase": "20%", "points": "0.5pp"})
    assert (margins.increase, margins.points) == (0.2, 0.005)
    assert margins.model_dump(mode="json") == {"wait": "90s", "increase": "20%", "points": "0.5pp"}
    # No digit of an objective is lost: 99.99999% is not 100%.
    assert Margins(wait="1s", increase="99.99999%", points="1pp").model_dump(mode="json")["increase"] == "99.99999%"


@pytest.mark.parametrize(("increase", "points"), [("20", "1pp"), ("20pp", "1pp"), ("20%", "1%"), (20, "1pp")])
def test_a_percent_is_not_a_percentage_point_nor_a_bare_number(increase: object, points: object) -> None:
    with pytest.raises(ValidationError):
        Margins.model_validate({"wait": "1s", "increase": increase, "points": points})
