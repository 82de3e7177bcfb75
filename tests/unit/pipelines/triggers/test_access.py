"""Who may look at what `serve` shows."""

from __future__ import annotations

from base64 import b64encode

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pipelines.triggers.app import behind_door

TOKEN = "0123456789abcdef0123456789abcdef"


async def secret(_: Request) -> PlainTextResponse:
    return PlainTextResponse("shown")


async def alive(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


def client(password: str | None = None, *, base: str = "http://localhost") -> TestClient:
    routes = [Route("/", secret), Route("/healthz", alive)]
    app = behind_door(routes, hosts=["page.example"], password=password, open_to_all=["/healthz"])
    return TestClient(app, base_url=base)


@pytest.mark.parametrize(
    "base",
    [
        "http://localhost:8093",
        "http://127.0.0.1:8093",
        "http://[::1]:8093",
        "http://page.example",
        "http://PAGE.example:1",
    ],
)
def test_it_answers_to_its_names_and_to_numbers(base: str) -> None:
    assert client(base=base).get("/").status_code == 200


@pytest.mark.parametrize("host", ["rebound.evil.example", "localhost.evil.example:8093", "", "page.example.evil"])
def test_a_name_that_somebody_led_here_sees_nothing(host: str) -> None:
    answer = client().get("/", headers={"Host": host})
    assert (answer.status_code, "shown" in answer.text) == (421, False)


def test_probes_ask_by_any_name_and_without_a_login() -> None:
    assert client(TOKEN).get("/healthz", headers={"Host": "10-1-2-3.pod"}).status_code == 200


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"anybody:{password}".encode()).decode()}


def test_a_token_is_asked_for_and_taken_as_browsers_and_programs_send_it() -> None:
    page = client(TOKEN)
    refused = page.get("/")
    assert (refused.status_code, refused.headers["WWW-Authenticate"][:5]) == (401, "Basic")
    assert page.get("/", headers=basic(TOKEN)).status_code == 200
    assert page.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    for wrong in (basic("x"), basic(""), {"Authorization": "Bearer"}, {"Authorization": "Basic ?"}):
        assert page.get("/", headers=wrong).status_code == 401


def test_every_answer_says_what_browsers_may_do_with_it() -> None:
    for answer in (client().get("/"), client().get("/nowhere"), client(TOKEN).get("/")):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_a_token_is_in_no_text() -> None:
    app = behind_door([Route("/", secret)], hosts=(), password=TOKEN, open_to_all=())
    assert TOKEN not in f"{app!r} {app.user_middleware!r}"
