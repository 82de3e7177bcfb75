"""How an answer can end, and what its client gets to see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine_images.entrypoint.answers import App, Message, OpenAnswers, Receive, Scope, Send

SSE = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
}
TOKEN = {"type": "http.response.body", "body": b'data: {"choices": []}\n\n', "more_body": True}
END = {"type": "http.response.body", "body": b"", "more_body": False}
ERROR = {"type": "http.response.body", "body": b'data: {"error": {"code": 500}}\n\n', "more_body": True}


class Client:
    """One who asks, and keeps what comes."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.outcomes: list[str] = []
        self.progress = 0
        self.answers = OpenAnswers(progress=self._progress, count=self.outcomes.append)

    def _progress(self) -> None:
        self.progress += 1

    async def send(self, message: Message) -> None:
        self.got.append(message)

    async def receive(self) -> Message:
        return {"type": "http.disconnect"}

    async def ask(self, app: App) -> None:
        await self.answers.serve(app, {"type": "http"}, self.receive, self.send)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got)


def says(*messages: dict[str, Any]) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(dict(message))

    return app


def says_and_hangs(*messages: dict[str, Any]) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await says(*messages)(scope, receive, send)
        await asyncio.Event().wait()

    return app


def with_status(status: int) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": []}


async def leaves(scope: Scope, receive: Receive, send: Send) -> None:
    await says(SSE, TOKEN)(scope, receive, send)
    await receive()


@pytest.mark.parametrize(
    ("app", "outcome"),
    [
        (says(SSE, TOKEN, END), "ok"),
        (says(with_status(200), END), "ok"),
        (says(with_status(404), END), "client_error"),
        (says(with_status(500), END), "server_error"),
        (says(SSE, TOKEN, ERROR, END), "server_error"),
        (says(SSE, TOKEN), "server_error"),
        (leaves, "disconnected"),
    ],
)
async def test_every_end_has_a_name(app: App, outcome: str) -> None:
    client = Client()
    await client.ask(app)
    assert client.outcomes == [outcome]
    assert client.answers.open == 0


async def test_an_application_that_fails_is_counted_and_its_error_goes_on() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("failed")

    client = Client()
    with pytest.raises(RuntimeError):
        await client.ask(app)
    assert client.outcomes == ["server_error"]


async def cut(client: Client, app: App) -> None:
    """Ask, cut once the application hangs, and wait until the answer has ended."""
    asked = asyncio.create_task(client.ask(app))
    await asyncio.sleep(0)
    assert not await client.answers.finished(within_seconds=0.01)
    client.answers.cut()
    assert await client.answers.finished(within_seconds=1)
    await asked


async def test_a_stream_that_is_cut_ends_with_an_error_and_not_as_if_it_were_whole() -> None:
    client = Client()
    await cut(client, says_and_hangs(SSE, TOKEN))
    assert client.outcomes == ["cut"]
    assert b"\n\nevent: error\ndata: " in client.body
    assert b"[DONE]" not in client.body
    assert client.got[-1]["more_body"] is False


async def test_an_answer_that_is_cut_before_it_began_is_refused() -> None:
    client = Client()
    await cut(client, says_and_hangs())
    assert client.outcomes == ["cut"]
    assert client.got[0]["status"] == 503
    assert (b"retry-after", b"1") in client.got[0]["headers"]


async def test_an_answer_of_another_kind_that_is_cut_is_left_open_for_the_server_to_close() -> None:
    client = Client()
    await cut(client, says_and_hangs(with_status(200), {"type": "http.response.body", "body": b"{", "more_body": True}))
    assert client.body == b"{"
    assert client.outcomes == ["cut"]


async def test_an_application_that_swallows_its_cancellation_is_cut_all_the_same() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await says_and_hangs(SSE, TOKEN)(scope, receive, send)
        except asyncio.CancelledError:
            return

    client = Client()
    await cut(client, app)
    assert b"event: error" in client.body


async def test_a_cancellation_that_is_not_ours_goes_on() -> None:
    client = Client()
    asked = asyncio.create_task(client.ask(says_and_hangs(SSE)))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert b"event: error" not in client.body


async def test_clients_are_told_to_come_back_on_another_connection_once_we_close() -> None:
    client = Client()
    client.answers.closing = True
    await client.ask(says(with_status(200), END))
    assert (b"connection", b"close") in client.got[0]["headers"]


@pytest.mark.parametrize(("app", "parts"), [(says(SSE, TOKEN, TOKEN, END), 3), (says(with_status(500), END), 0)])
async def test_only_what_went_well_is_proof_of_life(app: App, parts: int) -> None:
    client = Client()
    await client.ask(app)
    assert client.progress == parts
