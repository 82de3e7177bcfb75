"""A server on this machine that takes what is posted to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Heard:
    """Where to post, and what was posted."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def receiving(path: str = "/T0/secret") -> Iterator[Heard]:
    """Answers 204 to every JSON document at `path`."""
    heard = Heard()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the server looks for this name
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == path:
                heard.bodies.append(json.loads(body))
            self.send_response(204 if self.path == path else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Tests look at what tidegate says."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        heard.url = f"http://127.0.0.1:{server.server_address[1]}{path}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield heard
        finally:
            server.shutdown()
            thread.join()
