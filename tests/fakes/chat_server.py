"""An engine for tests of clients: streams words slowly, fails or cuts when its model name says so."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = ("The", " answer", " is", " four")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        self.server.regenerates.append(self.headers["x-tidegate-regenerates"])
        status = {"refuse": 400, "fail": 500}.get(body["model"], 200)
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if status == 200 else "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("x-tidegate-role", "canary")
        self.send_header("x-tidegate-version", "7")
        self.end_headers()
        if status != 200:
            self._chunk(b'{"error": {"message": "no"}}')
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
    """Serve on a free loopback port; answers by model name: `refuse`, `fail`, `cut`, else four words."""
    server = FakeChatServer(token_seconds)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
