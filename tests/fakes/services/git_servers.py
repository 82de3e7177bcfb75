"""The same repository behind a door: git's own `http-backend` with a password, and a real `sshd` with a key."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fakes.services.http import QuietHandler, answering
from fakes.services.sockets import free_address

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else None)


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


@dataclass(frozen=True)
class SshDoor:
    """A repository over ssh, and what opens it."""

    address: str
    key: str
    """The private key that is let in."""
    known_hosts: str


@contextmanager
def over_ssh(bare: Path, folder: Path) -> Iterator[SshDoor]:
    """By a server of its own on a free port, which takes one key."""
    assert SSHD is not None, "there is no sshd here"
    folder.mkdir()
    for name in ("host", "user"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(made, check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    host, port = free_address().split(":")
    settings = {
        "ListenAddress": f"{host}:{port}",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "PidFile": folder / "pid",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "UsePAM": "no",
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    # As root it wants this folder, and makes it only when the system starts it.
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.PIPE)
    try:
        _listening(process, host, port)
        public = " ".join((folder / "host.pub").read_text().split()[:2])
        address = f"ssh://{_user()}@{host}:{port}{bare}"
        yield SshDoor(address, (folder / "user").read_text(), f"[{host}]:{port} {public}\n")
    finally:
        process.terminate()
        process.wait(60)
        assert process.stderr is not None
        process.stderr.close()


def _listening(process: subprocess.Popen[bytes], host: str, port: str) -> None:
    scan = ["ssh-keyscan", "-T", "1", "-p", port, host]
    for _ in range(50):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        if subprocess.run(scan, capture_output=True, check=False).stdout:
            return
        time.sleep(0.1)
    raise AssertionError("sshd does not listen")


def _user() -> str:
    import getpass

    return getpass.getuser()
