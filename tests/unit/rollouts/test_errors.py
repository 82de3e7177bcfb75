"""Errors keep their class and their words on the way through a socket."""

from __future__ import annotations

from rollouts.errors import error_from_json, error_to_json
from tidegate.core.errors import OutsideError


def test_an_error_that_the_other_side_does_not_know_arrives_as_its_base() -> None:
    class Melted(OutsideError):
        pass

    assert type(error_from_json(error_to_json(Melted("too hot")))) is OutsideError
