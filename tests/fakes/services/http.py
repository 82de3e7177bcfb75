"""HTTP servers of a test: what they answer is the test's, the rest is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

EXPOSITION = "text/plain; version=0.0.4"
"""Prometheus's plain format."""


class QuietHandler(BaseHTTPRequestHandler):
    """Logs nothing: tests look at what tidegate says."""

    def answer(self, body: bytes | str = b"", status: int = 200, **headers: str) -> None:
        """Names of headers have `_` for `-`; a Content-Length that is not given is the body's."""
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in ({"content_length": str(len(content))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        # One who asked may have left: a scrape that missed its deadline, a client that was closed.
        with suppress(BrokenPipeError):
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """HOST:PORT of this machine where `handler` answers, while the block lasts."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def page(content: Callable[[], bytes | str], content_type: str = EXPOSITION) -> Iterator[str]:
    """HOST:PORT where every GET, of any path, is answered with what `content` then returns."""

    class Page(QuietHandler):
        def do_GET(self) -> None:
            self.answer(content(), content_type=content_type)

    with answering(Page) as address:
        yield address
