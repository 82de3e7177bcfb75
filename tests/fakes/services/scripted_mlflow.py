"""A server on this machine that gives the answers that it was told to give, in MLflow's place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fakes.services.http import QuietHandler, answering


@dataclass(frozen=True)
class Answer:
    """One, whose parts are sent one after the other; without a length it ends when the connection is closed."""

    content: object = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    parts: Callable[[], Iterator[bytes]] | None = None
    cut: bool = False
    """Say that there is more, and hang up."""


@dataclass
class ScriptedMlflow:
    """One answer after the other, the last one for ever; notes what was asked."""

    uri: str
    answers: list[Answer]
    asked: list[tuple[str, str]] = field(default_factory=list)
    """The method and the path of each request."""
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def scripted(*answers: Answer) -> Iterator[ScriptedMlflow]:
    """It, at an address of its own."""
    script = ScriptedMlflow("", list(answers))

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            script.asked.append((self.command, self.path))
            script.headers.append(dict(self.headers))
            answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            content = answer.content if isinstance(answer.content, bytes) else json.dumps(answer.content).encode()
            if answer.parts is None:
                length = {"content_length": str(len(content) + 1)} if answer.cut else {}
                self.answer(content, answer.status, **answer.headers, **length)
                return
            self.send_response(answer.status)
            self.end_headers()
            for part in answer.parts():
                self.wfile.write(part)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        def handle(self) -> None:
            try:
                super().handle()
            # One who had enough.
            except ConnectionError:
                self.close_connection = True

    with answering(Handler) as address:
        script.uri = f"http://{address}"
        yield script
