"""Where a redirect may lead, and what goes along."""

from __future__ import annotations

import io
from http.client import HTTPMessage
from urllib.request import Request

import pytest

from engine_images.entrypoint.journal import NotAsBuilt
from engine_images.entrypoint.weights import CarefulRedirects, on_loopback


def redirected(source: str, target: str) -> Request:
    asked = Request(source, headers={"Authorization": "Bearer secret", "Range": "bytes=7-"})
    request = CarefulRedirects().redirect_request(asked, io.BytesIO(), 302, "Found", HTTPMessage(), target)
    assert request is not None
    return request


@pytest.mark.parametrize(
    ("target", "token"),
    [
        ("https://store.example/other", True),
        ("https://store.example:443/other", True),
        ("https://store.example:8443/other", False),
        ("https://evil.example/other", False),
        ("https://evil.store.example/other", False),
    ],
)
def test_a_token_goes_along_to_the_same_origin_only(target: str, token: bool) -> None:
    request = redirected("https://store.example/models/7/config.json", target)
    assert request.has_header("Authorization") == token
    assert request.get_header("Range") == "bytes=7-"


def test_what_was_asked_by_https_is_fetched_by_https() -> None:
    with pytest.raises(NotAsBuilt, match="from https to http"):
        redirected("https://store.example/models/7", "http://store.example/models/7")


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost.evil.example", False),
        ("10.0.0.1", False),
        (None, False),
    ],
)
def test_on_the_loopback_nobody_else_is_on_the_line(host: str | None, near: bool) -> None:
    assert on_loopback(host) == near
