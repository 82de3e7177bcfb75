"""Placeholders of the dashboards' files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from slo.dashboards.fill import LEVELS, fill, template

VALUES = {"ttft": 0.25, "seen": 'region="eu"', "itl": None}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("<ttft>", 0.25),
        ("<itl>", None),
        ("the line of <ttft> s", "the line of 0.25 s"),
        ("x{<seen>} > 0", 'x{region="eu"} > 0'),
        ([["green"], ["red", "<ttft>"]], [["green"], ["red", 0.25]]),
        ([{"when": "ttft", "a": 1}, {"when": "itl", "a": 2}, {"unless": "itl", "a": 3}], [{"a": 1}, {"a": 3}]),
    ],
)
def test_filled__placeholders(part: Any, expected: Any) -> None:
    assert fill(part, VALUES) == expected


def test_filled__unknown_placeholder() -> None:
    with pytest.raises(KeyError, match="tftt"):
        fill({"title": "the line of <tftt> s"}, VALUES)


@pytest.mark.parametrize("level", LEVELS)
def test_level__no_limit_of_a_service_is_written_into_a_file(level: str) -> None:
    """What an SLO sets is a placeholder: a file has neither a service's name nor a bucket's edge."""
    text = json.dumps(template(level))
    assert not re.search(r'service="|\ble=~?\\"[^<]', text)
