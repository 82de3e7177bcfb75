"""Refusals, read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollouts.errors import ApiError, Conflict, Forbidden, Gone, Invalid, NotFound, TooManyRequests, Unauthorized
from rollouts.kube.client import BODY_CHARACTERS, refusal
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
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (405, "MethodNotAllowed", ApiError),
        (500, "InternalError", ApiError),
        (503, "ServiceUnavailable", ApiError),
    ],
)
def test_each_refusal_has_its_kind(code: int, reason: str, kind: type[ApiError]) -> None:
    error = refusal(ASKED, code, body(code, reason, "no"))
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, reason, f"{ASKED}: no")
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
