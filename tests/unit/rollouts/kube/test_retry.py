"""When to ask again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.errors import (
    ApiError,
    Conflict,
    FleetError,
    Forbidden,
    NoAccess,
    NoConnection,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from rollouts.kube.retry import Backoff, may_repeat


@pytest.mark.parametrize(
    ("error", "read", "write"),
    [
        (NoConnection("refused"), True, True),
        (TooManyRequests("busy", status=429), True, True),
        (Unreachable("cut"), True, False),
        (ApiError("etcd", status=500), True, False),
        (ApiError("rolling", status=503), True, False),
        (ApiError("odd", status=418), False, False),
        (Conflict("faster", status=409), False, False),
        (NotFound("gone", status=404), False, False),
        (Forbidden("no", status=403), False, False),
        (Unauthorized("who", status=401), False, False),
        (NoAccess("no token"), False, False),
    ],
)
def test_a_write_is_repeated_only_when_nothing_can_have_been_done(error: FleetError, read: bool, write: bool) -> None:
    assert may_repeat(error, changes_nothing=True) is read
    assert may_repeat(error, changes_nothing=False) is write


def test_pauses_double_up_to_a_limit() -> None:
    backoff = Backoff(first_seconds=1, most_seconds=5)
    almost = 0.999999
    assert [round(backoff.pause(n, almost)) for n in (1, 2, 3, 4, 40, 10**6)] == [1, 2, 4, 5, 5, 5]


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_chance_takes_away_at_most_half(failures: int, chance: float) -> None:
    backoff = Backoff()
    whole = min(backoff.most_seconds, backoff.first_seconds * 2.0 ** (failures - 1))
    assert whole / 2 <= backoff.pause(failures, chance) <= whole
