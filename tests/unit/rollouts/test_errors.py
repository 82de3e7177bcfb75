"""Errors keep their class and their words on the way through a socket."""

from __future__ import annotations

import json

import pytest

from rollouts.errors import EngineDidNotStart, NotOurs, NotPossible, error_from_json, error_to_json
from tidegate.core.errors import OutsideError, TidegateError


@pytest.mark.parametrize("kind", [EngineDidNotStart, NotPossible, NotOurs, OutsideError])
def test_an_error_arrives_as_it_was_sent(kind: type[TidegateError]) -> None:
    sent = kind("it died", hint="see its log", detail="Traceback")
    got = error_from_json(json.loads(json.dumps(error_to_json(sent))))
    assert type(got) is kind
    assert (got.message, got.hint, got.detail, got.exit_code) == ("it died", "see its log", "Traceback", kind.exit_code)


def test_an_error_that_the_other_side_does_not_know_arrives_as_its_base() -> None:
    class Melted(OutsideError):
        pass

    assert type(error_from_json(error_to_json(Melted("too hot")))) is OutsideError
