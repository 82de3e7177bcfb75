"""Refusals, read; and when a request may be sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.errors import (
    ApiError,
    Conflict,
    FleetError,
    Forbidden,
    Invalid,
    NoAccess,
    NoConnection,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from rollouts.kube.client import BODY_CHARACTERS, refusal
from rollouts.kube.retry import Backoff, may_repeat
from tidegate.core.errors import ExitCode

ASKED = "GET rollouts/support-llm"


def body(code: int, reason: str, message: str, **details: Any) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return json.dumps(status | {"reason": reason, "code": code, "details": details}).encode()


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", Conflict),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (405, "MethodNotAllowed", ApiError),
        (500, "InternalError", ApiError),
        (503, "ServiceUnavailable", ApiError),
        (500, "failed to create typed patch object (x): .spec.selectors: field not declared in schema", Invalid),
    ],
)
def test_each_refusal_has_its_kind(code: int, reason: str, kind: type[ApiError]) -> None:
    error = refusal(ASKED, code, body(code, reason, reason))
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, reason, f"{ASKED}: {reason}")
    assert error.exit_code is ExitCode.OUTSIDE


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("7", {}, 7.0),
        ("7", {"retryAfterSeconds": 3}, 7.0),
        (None, {"retryAfterSeconds": 3}, 3.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", {}, None),
        (None, {}, None),
    ],
)
def test_a_server_may_say_when_to_come_again(header: str | None, details: dict[str, Any], seconds: float) -> None:
    error = refusal(ASKED, 429, body(429, "TooManyRequests", "later", **details), header)
    assert error.retry_after_seconds == seconds


@pytest.mark.parametrize("said", [b"<html>Bad Gateway</html>", b"", b"\xff\xfe", b"[1]", b'{"kind": "Pod"}'])
def test_what_stands_before_the_server_may_say_anything(said: bytes) -> None:
    error = refusal(ASKED, 502, said)
    assert type(error) is ApiError
    assert error.message == f"{ASKED}: answered 502, not by the API server itself"


def test_a_kind_that_is_not_served_is_no_proxy() -> None:
    error = refusal(ASKED, 404, b"404 page not found\n")
    assert type(error) is NotFound
    assert error.message == f"{ASKED}: answered 404, as API servers do for a kind that they do not serve"


def test_a_long_page_is_cut() -> None:
    assert len(refusal(ASKED, 502, b"x" * 10**6).detail or "") == BODY_CHARACTERS


def test_a_status_may_leave_out_everything() -> None:
    error = refusal(ASKED, 500, b'{"kind": "Status"}')
    assert (type(error), error.status, error.message) == (ApiError, 500, f"{ASKED}: no reason given")


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


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_chance_takes_away_at_most_half(failures: int, chance: float) -> None:
    backoff = Backoff()
    whole = min(backoff.most_seconds, backoff.first_seconds * 2.0 ** (failures - 1))
    assert whole / 2 <= backoff.pause(failures, chance) <= whole
