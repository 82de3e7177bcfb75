"""Engines and judges on the loopback, with faults to order.

An engine for tests of clients streams words slowly, fails or cuts when its model name says so, or answers by a function
of the prompt; an OpenAI-compatible one is a judge of known quality.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from fakes.services.asgi import routes_served
from fakes.services.http import QuietHandler
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gates.judge.rubric import ALONE, NAMES, JudgeReply, JudgeRequest

DIMENSIONS = ("helpfulness", "accuracy", "coherence", "safety")


def an_answer(worth: float, words: str) -> str:
    """An answer worth so much, 0 to 1, to a question that has `words` in it."""
    return f"{' '.join([words] * 6)} worth {worth:.3f}"


def worth_of(question: str, answer: str) -> float:
    """What the answer says that it is worth; little when it answers another question."""
    words, _, worth = answer.rpartition(" worth ")
    return float(worth) if words.split(" ", 1)[0] in question else 0.1


class FakeJudge:
    """Scores by `worth_of`; `place_bias` goes to the first answer, `noise` to both, in standard deviations."""

    def __init__(
        self,
        *,
        place_bias: float = 0.0,
        noise: float = 0.0,
        seed: int = 0,
        worth: Callable[[str, str], float] = worth_of,
        says: Callable[[str], str] = str,
    ) -> None:
        """`says` may spoil the reply."""
        self.requests: list[JudgeRequest] = []
        self._place_bias, self._noise, self.worth, self._says = place_bias, noise, worth, says
        self._random = random.Random(seed)

    async def ask(self, request: JudgeRequest) -> JudgeReply:
        self.requests.append(request)
        return JudgeReply(text=self.reply(request.user))

    def reply(self, material: str) -> str:
        given = json.loads(material)
        scores = {}
        for name in given.keys() - {"question"} if ALONE[0] in given else NAMES:
            bias = self._place_bias if name == NAMES[0] else 0.0
            worth = self.worth(given["question"], given[name]) + bias + self._random.gauss(0, self._noise)
            scores[name] = dict.fromkeys(DIMENSIONS, round(min(1.0, max(0.0, worth)) * 20) / 20)
        return self._says(json.dumps({"reason": "as asked", **scores}))


WORDS = ("The", " answer", " is", " four")


class Fault(NamedTuple):
    """What is answered in place of a stream."""

    status: int
    body: bytes
    content_type: str = "application/json"


FAULTS = {
    "refuse": Fault(400, b'{"error": {"message": "no", "type": "BadRequestError", "code": 400}}'),
    "fail": Fault(500, b'{"error": {"message": "CUDA error: device-side assert", "code": 500}}'),
    "crash": Fault(500, b"Internal Server Error", "text/plain"),
    "dead": Fault(503, b'{"error": {"message": "EngineCore died", "code": 503}}'),
    "unknown": Fault(404, b'{"error": {"message": "The model `unknown` does not exist.", "code": 404}}'),
    "foreign": Fault(404, b'{"detail": "Not Found"}'),
    "gateway": Fault(503, b"no healthy upstream", "text/plain"),
    "no-route": Fault(404, b"", "text/plain"),
    "late-gateway": Fault(504, b"<html>Gateway Time-out</html>", "text/html"),
    "no-access": Fault(401, b'{"error": {"message": "Invalid API key"}}'),
    "too-many": Fault(429, b"slow down", "text/plain"),
    "nonsense": Fault(200, b"data: {no json}\n\n", "text/event-stream"),
    "other-form": Fault(200, b'data: {"choices": 5}\n\n', "text/event-stream"),
    "page": Fault(200, b"<html>welcome</html>", "text/html"),
    "mid-error": Fault(200, b'data: {"error": {"message": "out of memory", "code": 500}}\n\n', "text/event-stream"),
}
"""By model name."""


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: FakeChatServer

    def do_GET(self) -> None:
        if not self._refused():
            self._says({"object": "list", "data": [{"id": name} for name in self.server.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self._refused():
            return
        if self.server.reads and self.path.endswith("/tokenize"):
            self._says({"tokens": self.server.reads(body["messages"])})
            return
        self.server.bodies.append(body)
        model = self.server.as_if or body["model"]
        words, fault = self._found(body, model)
        if model == "vanish":
            self.close_connection = True
            return
        if model == "hang":
            time.sleep(self.server.token_seconds * 20)
        self.send_response(fault.status if fault else 200)
        self.send_header("content-type", fault.content_type if fault else "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("x-tidegate-role", "canary")
        self.send_header("x-tidegate-version", "7")
        self.end_headers()
        if fault:
            self._chunk(fault.body)
            self._chunk(b"")
            return
        self._stream(words, chat="messages" in body, cut=model == "cut")

    def _says(self, document: dict[str, Any]) -> None:
        self.answer(json.dumps(document), content_type="application/json")

    def _refused(self) -> bool:
        if self.server.key and self.headers["authorization"] != f"Bearer {self.server.key}":
            self.answer('{"error": {"message": "Incorrect API key provided: sk-wr***ng"}}', 401)
        elif self.server.busy:
            self.server.busy -= 1
            self.answer('{"error": {"message": "slow down"}}', 429, retry_after="0")
        else:
            return False
        return True

    def _found(self, body: dict[str, Any], model: str) -> tuple[Sequence[str], Fault | None]:
        if self.server.says is None:
            return WORDS, FAULTS.get(model)
        text = self.server.says(body["messages"][-1]["content"] if "messages" in body else body["prompt"])
        if text is None:
            return (), Fault(500, b'{"error": {"message": "no memory is left"}}')
        first, *more = text.split(" ")
        return [first, *(f" {word}" for word in more)], None

    def _stream(self, words: Sequence[str], *, chat: bool, cut: bool) -> None:
        def part(text: str) -> dict[str, object]:
            return {"index": 0, "finish_reason": None, **({"delta": {"content": text}} if chat else {"text": text})}

        if chat:
            self._event({"choices": [part("") | {"delta": {"role": "assistant", "content": ""}}]})
        for number, word in enumerate(words):
            time.sleep(self.server.token_seconds)
            self._event({"choices": [part(word) | {"token_ids": [number]}]})
            if cut and number == 1:
                self.close_connection = True
                return
        self._event({"choices": [part("") | {"finish_reason": "stop"} | ({"delta": {}} if chat else {})]})
        usage = {"prompt_tokens": 3, "completion_tokens": len(words), "total_tokens": 3 + len(words)}
        self._event({"choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, event: dict[str, object]) -> None:
        envelope = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        self._chunk(b"data: " + json.dumps({**envelope, **event}).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class FakeChatServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self,
        token_seconds: float,
        as_if: str = "",
        *,
        says: Callable[[str], str | None] | None = None,
        key: str = "",
        models: Sequence[str] = ("m",),
        busy: int = 0,
        reads: Callable[[list[dict[str, str]]], list[int]] | None = None,
    ) -> None:
        """By `says` it answers prompts, None with an error 500; without `key` nobody is answered; so many requests
        are told that it is `busy` first."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token_seconds = token_seconds
        self.as_if = as_if
        self.says, self.key, self.models, self.busy, self.reads = says, key, models, busy, reads
        self.bodies: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def chat_server(token_seconds: float = 0.05, **settings: Any) -> Iterator[FakeChatServer]:
    """Serve on a free loopback port; answers by model name, or `as_if` that was the name; also when asked for tokens.

    A name of `FAULTS` gets that; `cut` half an answer, `vanish` none, `hang` one after a long time; others get four
    words.
    """
    server = FakeChatServer(token_seconds, **settings)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def endpoint_server(says: Callable[[str], str | None] = str, **settings: Any) -> AbstractContextManager[FakeChatServer]:
    """The same, at once and by a function of the prompt; without more it says what it was asked."""
    return chat_server(0, says=says, **settings)


def engines(folder: Path) -> AbstractContextManager[FakeChatServer]:
    """Of all regions behind one address, a stable and a canary: they read as the files of `folder` say."""
    # Here: a judge needs no tokenizer.
    from engine_images.adapters.model_version import FileTokenizer

    return chat_server(0, reads=lambda messages: FileTokenizer().encode(folder, messages))


JudgeFault = Callable[[Request, dict[str, object]], Response | None]


@dataclass
class OpenAIServer:
    """What the server is to do, and what it was asked."""

    url: str
    faults: list[JudgeFault | None] = field(default_factory=list)
    """For the first requests, one each; None answers well."""
    bodies: list[dict[str, object]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    judge: FakeJudge = field(default_factory=FakeJudge)
    seconds: float = 0.0
    """An answer takes."""
    under_way: int = 0
    most_under_way: int = 0

    async def chat(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        fault = self.faults.pop(0) if self.faults else None
        if fault and (response := fault(request, body)):
            return response
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.seconds)
        self.under_way -= 1
        return completion(self.judge.reply(body["messages"][-1]["content"]))


def completion(text: str | None, *, finish_reason: str = "stop", refusal: str | None = None) -> Response:
    """A chat completion as the API words it."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return JSONResponse({"id": "c", "object": "chat.completion", "created": 0, "model": "judge", "choices": [choice]})


@contextmanager
def openai_server() -> Iterator[OpenAIServer]:
    """Serve on a free loopback port."""
    state = OpenAIServer(url="")
    with routes_served([Route("/v1/chat/completions", state.chat, methods=["POST"])]) as state.url:
        yield state
