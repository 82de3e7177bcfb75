"""An engine for tests of clients: streams words slowly, fails or cuts when its model name says so."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        self.server.regenerates.append(self.headers["x-tidegate-regenerates"])
        fault = FAULTS.get(body["model"])
        if body["model"] == "vanish":
            self.close_connection = True
            return
        if body["model"] == "hang":
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
        self._stream(cut=body["model"] == "cut")

    def _stream(self, *, cut: bool) -> None:
        self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        for number, word in enumerate(WORDS):
            time.sleep(self.server.token_seconds)
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None, "token_ids": [number]}
            self._event({"choices": [choice]})
            if cut and number == 1:
                self.close_connection = True
                return
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 3, "completion_tokens": len(WORDS), "total_tokens": 3 + len(WORDS)}
        self._event({"choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, event: dict[str, object]) -> None:
        envelope = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        self._chunk(b"data: " + json.dumps({**envelope, **event}).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


class FakeChatServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, token_seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token_seconds = token_seconds
        self.bodies: list[dict[str, object]] = []
        self.regenerates: list[str | None] = []
        """Of each request the version whose answer was not wanted; None of first requests."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def chat_server(token_seconds: float = 0.05) -> Iterator[FakeChatServer]:
    """Serve on a free loopback port; answers by model name, also when asked for tokens.

    A name of `FAULTS` gets that; `cut` half an answer, `vanish` none, `hang` one after a long time; others get four
    words.
    """
    server = FakeChatServer(token_seconds)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
