"""A server of chat completions whose times are known: each token has its moment, and what was written when is kept.

Runs in an environment of its own that has uvloop (`run.py` starts it), and imports nothing of ours. `GET /truth`
answers with what happened since the last `GET /truth`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import count
from typing import Any

import uvloop

FIRST_SECONDS = (0.04, 0.06, 0.08, 0.05, 0.12, 0.07, 0.05, 0.09, 0.06, 0.2)
"""From a request to its first token, one after the other: a median of 65 ms and a tail, as engines have them."""
TOKEN_SECONDS = 0.02
"""Between tokens: 50 a second in every stream."""
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
    """A chunk as vLLM writes it, and as HTTP frames it."""
    document = {
        "id": "chatcmpl-8b2f0a4c5d1e4f6c",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "known",
        "choices": choices,
        **more,
    }
    data = b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def choice(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}


ROLE = event([choice({"role": "assistant", "content": ""})])
TOKEN = event([choice({"content": " harbour"})])
LAST = event([choice({"content": " harbour"}, "length")])
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Truth:
    """What was done when, of requests that have ended; seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.requests: list[tuple[float, float, float, int]] = []
        self.late: list[float] = []
        self.at, self.processor = time.perf_counter(), time.process_time()

    def told(self) -> bytes:
        """Everything since the last time: when each request came, its first and its last token, and how many."""
        now, processor = time.perf_counter(), time.process_time()
        late = sorted(self.late)
        document = {
            "requests": self.requests,
            "late_p99_seconds": late[len(late) * 99 // 100] if late else 0.0,
            "cores": (processor - self.processor) / (now - self.at),
        }
        self.requests, self.late, self.at, self.processor = [], [], now, processor
        return json.dumps(document).encode()


class Stream:
    """One answer: a callback of the loop for each token."""

    def __init__(self, connection: Connection, tokens: int, first: float) -> None:
        self.connection, self.tokens, self.sent = connection, tokens, 0
        self.came = self.first = time.perf_counter()
        self.due = connection.loop.time() + first
        connection.loop.call_at(self.due, self.write)

    def write(self) -> None:
        """The next token, and the time at which it left; then the next one's turn."""
        connection = self.connection
        if connection.transport.is_closing():
            return
        connection.truth.late.append(connection.loop.time() - self.due)
        self.sent += 1
        if self.sent == 1:
            self.first = time.perf_counter()
            connection.transport.write(STREAM_HEAD + ROLE + TOKEN)
        elif self.sent < self.tokens:
            connection.transport.write(TOKEN)
        if self.sent < self.tokens:
            self.due += TOKEN_SECONDS
            connection.loop.call_at(self.due, self.write)
            return
        last = time.perf_counter()
        usage = {"prompt_tokens": 12, "total_tokens": 12 + self.tokens, "completion_tokens": self.tokens}
        connection.transport.write(LAST + event([], usage=usage) + DONE)
        connection.truth.requests.append((self.came, self.first, last, self.tokens))


class Connection(asyncio.Protocol):
    """HTTP/1.1 as clients of chat completions speak it: a length, no pipelining."""

    def __init__(self, truth: Truth, numbers: count[int]) -> None:
        self.truth, self.numbers = truth, numbers
        self.loop = asyncio.get_running_loop()
        self.kept = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.kept += data
        head, found, body = self.kept.partition(b"\r\n\r\n")
        if not found:
            return
        line, *headers = head.split(b"\r\n")
        named = {name.lower(): value for name, _, value in (header.partition(b":") for header in headers)}
        if len(body) < int(named.get(b"content-length", b"0")):
            return
        self.kept = b""
        path = line.split(b" ")[1]
        if path.endswith(b"/chat/completions"):
            self.chat(json.loads(body))
        else:
            self.tell(path)

    def chat(self, asked: dict[str, Any]) -> None:
        tokens = int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 16)
        Stream(self, max(tokens, 2), FIRST_SECONDS[next(self.numbers) % len(FIRST_SECONDS)])

    def tell(self, path: bytes) -> None:
        models = {"object": "list", "data": [{"id": "known", "object": "model", "created": 0, "owned_by": "nobody"}]}
        body = self.truth.told() if path == b"/truth" else json.dumps(models).encode()
        self.transport.write(JSON_HEAD % len(body) + body)


async def serve(port: int) -> None:
    truth, numbers = Truth(), count()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(truth, numbers), "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
