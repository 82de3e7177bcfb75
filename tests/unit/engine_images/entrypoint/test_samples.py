"""What an engine keeps of users' requests, for whom, how long, and what it does with all others."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from engine_images.entrypoint.answers import App, Message, OpenAnswers, Receive, Scope, Send
from engine_images.entrypoint.sampling.exchange import LARGEST_BYTES, read_exchange
from engine_images.entrypoint.sampling.samples import (
    END_PATH,
    SAMPLES_PATH,
    TOKEN_HEADER,
    SampleBuffer,
    Samples,
    SampleSettings,
)
from engine_images.samples.key import REDACTED, SampleKey
from tidegate.core.errors import OutsideError

ASKED = {"model": "m", "messages": [{"role": "user", "content": "who is jane@mail.example?"}], "stream": True}
PARTS = ("Nobody", " I", " know.")
CHAT = "/v1/chat/completions"


def event(choice: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


def streamed(parts: Sequence[str], *, done: bool = True) -> list[bytes]:
    said = [event({"delta": {"content": part}}) for part in parts]
    end = [event({"delta": {}, "finish_reason": "stop"}), b"data: [DONE]\n\n"] if done else []
    return [*said, *end]


class Engine:
    """A gate's samples with an application behind them, and who writes the file that it reads."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "samples.json"
        self.now = time.time()
        self.key = SampleKey()
        self.samples = Samples(self.file, "7", clock=lambda: self.now)

    def asked(self, key: SampleKey | None = None, **changes: Any) -> None:
        usual = {"until": self.now + 60, "redact": REDACTED, "words": (), "max_entries": 10, "max_bytes": 1 << 20}
        shares = changes.pop("shares", {"7": 1.0})
        self.file.write_text((key or self.key).request(shares, **{**usual, "keep_seconds": 60.0, **changes}))
        self.samples.look()

    async def answer(
        self,
        *,
        asked: Mapping[str, Any] = ASKED,
        parts: Sequence[bytes] = tuple(streamed(PARTS)),
        name: bytes = b"a",
        path: str = CHAT,
        status: int = 200,
        leaves: bool = False,
    ) -> list[Message]:
        """One request through the gate; what its client got."""
        got: list[Message] = []
        headers = [(b"x-request-id", name)] if name else []
        scope: Scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        said = iter([{"type": "http.request", "body": json.dumps(asked).encode()}, {"type": "http.disconnect"}])

        async def receive() -> Message:
            return next(said)

        async def send(message: Message) -> None:
            got.append(message)

        capture = self.samples.begin(scope)
        if capture is None:
            return got
        answers = OpenAnswers(progress=lambda: None, count=lambda _: None)
        await answers.serve(_app(parts, status, leaves=leaves), scope, receive, send, capture)
        self.samples.end(capture)
        while self.samples._waiting:  # sealed in a thread
            await asyncio.sleep(0.001)
        return got

    async def take(
        self, token: str | None = None, path: str = SAMPLES_PATH, header: str = ""
    ) -> tuple[int, dict[str, Any]]:
        got: list[Message] = []
        said = token or self.key.token
        headers = [(header.encode(), said.encode()) if header else (b"authorization", f"Bearer {said}".encode())]

        async def send(message: Message) -> None:
            got.append(message)

        await self.samples.serve({"method": "POST", "path": path, "headers": headers}, send)
        return got[0]["status"], json.loads(got[1]["body"])

    async def taken(self) -> list[dict[str, Any]]:
        _, body = await self.take()
        return [json.loads(self.key.open(base64.b64decode(each))) for each in body["samples"]]


def _app(parts: Sequence[bytes], status: int, *, leaves: bool) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        if leaves:
            await receive()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


async def test_nothing_is_kept_unless_asked(engine: Engine) -> None:
    assert await engine.answer() == []
    assert await engine.take() == (404, {"error": "no samples are kept"})
    assert engine.samples.status() == {"on": False, "held": 0}


async def test_a_sample_is_redacted_sealed_and_given_once(engine: Engine) -> None:
    engine.asked()
    assert len(await engine.answer()) == len(streamed(PARTS)) + 2
    status, body = await engine.take()
    sealed = base64.b64decode(body["samples"][0])
    assert (status, body["version"], body["counts"]) == (200, "7", {"kept": 1, "taken": 1})
    assert b"know" not in sealed
    found = json.loads(engine.key.open(sealed))
    assert (found["prompt"], found["answer"]) == ("who is [email]?", "Nobody I know.")
    assert (found["finish_reason"], found["whole"]) == ("stop", True)
    assert await engine.taken() == []


async def test_another_token_takes_nothing_and_another_key_opens_nothing(engine: Engine) -> None:
    engine.asked()
    await engine.answer()
    assert (await engine.take("guess"))[0] == 403
    _, body = await engine.take()
    with pytest.raises(OutsideError, match="not sealed for this delivery"):
        SampleKey().open(base64.b64decode(body["samples"][0]))


async def test_a_token_is_taken_from_a_header_that_proxies_pass_on(engine: Engine) -> None:
    engine.asked()
    await engine.answer()
    assert (await engine.take("guess", header=TOKEN_HEADER))[0] == 403
    assert len((await engine.take(header=TOKEN_HEADER))[1]["samples"]) == 1


async def test_who_has_the_token_ends_it_whatever_the_file_says(engine: Engine) -> None:
    engine.asked()
    await engine.answer()
    assert (await engine.take("guess", path=END_PATH))[0] == 403
    assert engine.samples.status()["held"] == 1
    assert await engine.take(path=END_PATH) == (200, {"held": 0})
    # Written again by one who did not know yet, or read late.
    engine.asked(max_entries=11)
    assert not engine.samples.on
    assert await engine.answer() == []
    engine.key = SampleKey()
    engine.asked()
    assert engine.samples.on


def test_the_file_holds_neither_the_token_nor_the_private_key(engine: Engine) -> None:
    engine.asked()
    written = json.loads(engine.file.read_text())
    assert engine.key.token not in engine.file.read_text()
    assert written["token_sha256"] == hashlib.sha256(engine.key.token.encode()).hexdigest()
    private = engine.key._private
    assert isinstance(private, X25519PrivateKey)
    assert base64.b64encode(private.private_bytes_raw()).decode() not in engine.file.read_text()


async def test_it_ends_with_the_file_with_its_time_and_with_another_key(engine: Engine) -> None:
    for ending in ("file", "time", "key"):
        engine.asked()
        await engine.answer()
        assert engine.samples.status()["held"] == 1
        if ending == "file":
            engine.file.unlink()
            engine.samples.look()
        elif ending == "time":
            engine.now += 61
            engine.samples.look()
        else:
            engine.asked(SampleKey())
        assert engine.samples.status()["held"] == 0, ending


async def test_a_broken_file_keeps_nothing(engine: Engine) -> None:
    for text in ("{", "{}", '{"public_key": 1}'):
        engine.asked()
        assert engine.samples.on
        engine.file.write_text(text)
        engine.samples.look()
        assert not engine.samples.on


async def test_a_request_and_its_copy_are_drawn_alike(tmp_path: Path) -> None:
    stable, canary = Engine(tmp_path / "1"), Engine(tmp_path / "2")
    for each in (stable, canary):
        each.file.parent.mkdir()
        each.asked(stable.key, shares={"7": 0.3}, max_entries=1000)
        each.key = stable.key
        for number in range(200):
            await each.answer(name=f"request {number}".encode())
    kept = [[found["pair"] for found in await each.taken()] for each in (stable, canary)]
    assert kept[0] == kept[1]
    assert len(set(kept[0])) == len(kept[0]) and 35 < len(kept[0]) < 85


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"path": "/v1/embeddings"}, 0),
        ({"status": 500}, 1),
        ({"name": b""}, 0),
        ({"asked": {**ASKED, "n": 2}}, 0),
        ({"asked": {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}}, 0),
        ({"parts": [event({"delta": {"tool_calls": [{}]}})]}, 0),
        ({"parts": [b"x" * (LARGEST_BYTES + 1)]}, 0),
        ({"asked": {"prompt": "a"}, "path": "/v1/completions", "parts": [event({"text": "b"})]}, 1),
    ],
)
async def test_only_texts_of_two_interfaces_are_kept(engine: Engine, changes: dict[str, Any], kept: int) -> None:
    engine.asked()
    await engine.answer(**changes)
    assert engine.samples.status()["held"] == kept


async def test_a_user_who_left_a_stream_that_was_cut_and_a_failure_are_marked(engine: Engine) -> None:
    engine.asked()
    await engine.answer(leaves=True)
    await engine.answer(parts=streamed(PARTS, done=False))
    await engine.answer(status=500, parts=[b"out of memory"])
    found = await engine.taken()
    assert [each["whole"] for each in found] == [False, False, False]
    assert (found[-1]["prompt"], found[-1]["answer"]) == ("who is [email]?", "")


async def test_the_tokens_of_an_answer_are_the_engines_count_or_the_parts_of_its_stream(engine: Engine) -> None:
    engine.asked()
    usage = b'data: {"choices": [], "usage": {"completion_tokens": 5}}'
    await engine.answer()
    await engine.answer(parts=[*streamed(PARTS, done=False), usage, b"\n\ndata: [DONE]\n\n"])
    assert [each["tokens"] for each in await engine.taken()] == [3, 5]


def test_a_buffer_is_bounded_by_size_and_by_age() -> None:
    now = 0.0
    buffer = SampleBuffer(clock=lambda: now)
    settings = SampleSettings("", "", 0, {}, "", (), max_entries=100, max_bytes=25, keep_seconds=10)
    for _ in range(4):
        buffer.add(b"x" * 10, settings)
    assert (len(buffer), buffer.counts["dropped"]) == (2, 2)
    now = 10.0
    buffer.expire()
    assert (len(buffer), buffer.counts["expired"], buffer.take()) == (0, 2, [])


def test_a_conversation_keeps_its_roles_and_an_answer_in_one_piece_is_read() -> None:
    said = [{"role": "system", "content": "Be terse."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    answer = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "length"}]}
    found = read_exchange(json.dumps({"messages": said}).encode(), json.dumps(answer).encode(), streams=False)
    assert found is not None
    assert (found.prompt, found.answer, found.finish_reason) == ("system: Be terse.\nuser: Hi", "Hello", "length")


def test_a_stream_ends_lines_where_events_do_and_wants_no_space() -> None:
    chunk = json.dumps({"choices": [{"delta": {"content": "a\u2028b\x85c"}}]}, ensure_ascii=False)
    found = read_exchange(json.dumps(ASKED).encode(), f"data:{chunk}\r\n\r\ndata:[DONE]\n\n".encode(), streams=True)
    assert found is not None and (found.answer, found.ended) == ("a\u2028b\x85c", True)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"messages": 5}', b'{"messages": [{}]}', b"\xff"])
def test_what_is_no_exchange_is_none(body: bytes) -> None:
    assert read_exchange(body, body, streams=False) is None
    assert read_exchange(json.dumps(ASKED).encode(), b'data: [5]\n\ndata: {"choices": 5}\n\n', streams=True) is None
