"""Values never change, accept nothing they do not know, and check even what nobody gave."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import Field, ValidationError

from tidegate.core.model import SpecModel, Value
from tidegate.core.units import Duration, Percent, format_duration, parse_duration


class Boat(Value):
    name: str
    length_metres: int = Field(default=5, gt=0)


class Trip(SpecModel):
    wait: Duration = timedelta(minutes=90)
    load: Percent = 0.125


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Boat(name="a").name = "b"  # type: ignore[misc]


def test_a_value_has_no_other_fields() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Boat.model_validate({"name": "a", "mast": 2})


def test_equal_values_are_one_value() -> None:
    assert len({Boat(name="a"), Boat(name="a"), Boat(name="b")}) == 2


def test_a_default_must_be_right_too() -> None:
    class Raft(Value):
        length_metres: int = Field(default=0, gt=0)

    with pytest.raises(ValidationError):
        Raft()


def test_a_value_crosses_a_process_as_json_and_is_the_same() -> None:
    boat = Boat(name="é", length_metres=7)
    assert Boat.model_validate_json(boat.model_dump_json()) == boat


def test_quantities_cross_a_process_with_their_units() -> None:
    trip = Trip()
    assert trip.model_dump(mode="json") == {"wait": "90m", "load": "12.5%"}
    assert Trip.model_validate_json(trip.model_dump_json()) == trip


def test_a_spec_contradicts_itself_only_when_it_says_how() -> None:
    assert list(Trip().contradictions()) == []


@pytest.mark.parametrize("seconds", [0.0005, 0.25, 1, 1.5, 59, 60, 90, 3600, 5400, 86400, 129600])
def test_every_duration_is_written_so_that_it_is_read_back(seconds: float) -> None:
    duration = timedelta(seconds=seconds)
    assert parse_duration(format_duration(duration)) == duration
