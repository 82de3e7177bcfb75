"""Durations as specs, Prometheus and Go write them, and as HTTP asks for them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.durations import (
    format_duration,
    parse_duration,
    parse_go_duration,
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


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    length = timedelta(milliseconds=milliseconds)
    assert parse_prometheus_duration(prometheus_duration(length)) == length


@pytest.mark.parametrize("text", ["", "5", "m", "5M", "1.5h", "1m1h", "-5m", "5m ", "9999999999999999y"])
def test_what_prometheus_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration"):
        parse_prometheus_duration(text)


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


@pytest.mark.parametrize(("text", "seconds"), [("1h30m", 5400), ("1d12h", 129600), ("1m1.5s", 61.5), ("2s250ms", 2.25)])
def test_a_duration_of_several_units_is_their_sum(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["1m1h", "1h 30m", "1h1h", "1w", "9" * 400 + "d"])
def test_units_out_of_order_or_too_large_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("30m1h", 5400), ("1h1h", 7200), (".5s", 0.5), ("1.s", 1)],
)
def test_a_duration_of_go_is_read_in_any_order(text: str, seconds: float) -> None:
    assert parse_go_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "60", "soon", "1d", "1h 30m", "-"])
def test_what_go_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="as Go writes it"):
        parse_go_duration(text)


@pytest.mark.parametrize(
    ("header", "seconds"), [("2", 2), (3, 3), (None, None), ("-1", None), ("Fri, 13 Nov 2026 09:00:00 GMT", None)]
)
def test_a_server_asks_for_a_pause_in_seconds(header: object, seconds: float | None) -> None:
    assert read_retry_after(header) == seconds
