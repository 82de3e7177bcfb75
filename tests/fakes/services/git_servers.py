"""The same repository behind a door: git's own `http-backend` with a password."""

from __future__ import annotations

import os
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fakes.services.http import QuietHandler, answering


@dataclass
class Door:
    """Where a repository is served, and what came there."""

    address: str = ""
    heard: list[str] = field(default_factory=list)
    """`Authorization` of every request."""
    away: bool = False
    """Whether it answers 503 to everything."""


@contextmanager
def over_http(bare: Path, authorization: str) -> Iterator[Door]:
    """By CGI, for the one who sends just that header; to others it repeats what they sent."""
    door = Door()

    class Backend(QuietHandler):
        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def _serve(self) -> None:
            said = self.headers.get("Authorization", "")
            door.heard.append(said)
            body = self._body()
            if door.away:
                self.answer("busy", status=503)
            elif said != authorization:
                self.answer(f"not you: {said}", status=401, www_authenticate='Basic realm="git"')
            else:
                self._by_cgi(body)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _by_cgi(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            said = {
                "GIT_PROJECT_ROOT": str(bare.parent),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REMOTE_USER": "ci",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            done = subprocess.run(
                ["git", "http-backend"], input=body, capture_output=True, env={**os.environ, **said}, check=False
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with answering(Backend) as address:
        door.address = f"http://{address}/{bare.name}"
        yield door


def basic(username: str, password: str) -> str:
    """The header of who says so."""
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"
