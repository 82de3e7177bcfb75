"""Quantities carry their unit in, and out again."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tidegate.core.durations import Duration
from tidegate.core.model import SpecModel
from tidegate.core.quantities import Percent, PercentagePoints


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


def test_the_schema_tells_editors_what_to_write() -> None:
    properties = Margins.model_json_schema()["properties"]
    assert properties["wait"]["pattern"].endswith("(ms|s|m|h|d))+$")
    assert properties["increase"]["pattern"].endswith("%$")
