"""What receivers may answer, and that no error holds an address."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

import httpx
import pytest

from pipelines.adapters.notify_http import post
from pipelines.views.notifications import NotTaken

SECRET = "https://hooks.example/T0/secret"


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError(f"cannot reach {request.url}", request=request)


def answering(status: int) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(status, headers={"location": "https://elsewhere.example"})


@pytest.mark.parametrize("status", [200, 202, 204])
def test_any_success_will_do(status: int) -> None:
    post(SECRET, {"text": "x"}, httpx.MockTransport(answering(status)))


@pytest.mark.parametrize(
    ("handler", "reason", "again"),
    [
        (answering(302), "answered 302", False),
        (answering(404), "answered 404", False),
        (answering(429), "answered 429", True),
        (answering(503), "answered 503", True),
        (refused, "no answer (ConnectError)", True),
    ],
)
def test_everything_else_is_told_without_the_address(
    caplog: pytest.LogCaptureFixture,
    *,
    handler: Callable[[httpx.Request], httpx.Response],
    reason: str,
    again: bool,
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(NotTaken) as caught:
        post(SECRET, {"text": "x"}, httpx.MockTransport(handler))
    assert (str(caught.value), caught.value.again) == (reason, again)
    assert "secret" not in "".join(traceback.format_exception(caught.value)) + caplog.text


@pytest.mark.parametrize(
    "url", ["secret", "ftp://example/secret", "https://[secret", "http://a b/secret", "https://x:secret/"]
)
def test_what_is_no_address_is_not_quoted(url: str) -> None:
    with pytest.raises(NotTaken) as caught:
        post(url, {}, httpx.MockTransport(answering(503)))
    assert "secret" not in "".join(traceback.format_exception(caught.value))
