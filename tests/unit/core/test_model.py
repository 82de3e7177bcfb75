"""Values never change, accept nothing they do not know, and check even what nobody gave."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from tidegate.core.model import Value


class Boat(Value):
    name: str
    length_metres: int = Field(default=5, gt=0)


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Boat(name="a").name = "b"  # type: ignore[misc]


def test_a_value_has_no_other_fields() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Boat.model_validate({"name": "a", "mast": 2})


def test_a_default_must_be_right_too() -> None:
    class Raft(Value):
        length_metres: int = Field(default=0, gt=0)

    with pytest.raises(ValidationError):
        Raft()
