"""A real registry on the loopback, and the other half of how public registries log people in.

Debian's `docker-registry` is started, killed and started again on its own folder; a server gives tokens for what is
asked for, over https, because nobody sends a password otherwise.
"""

from __future__ import annotations

import base64
import json
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlparse

import httpx
import yaml
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate
from fakes.services.http import QuietHandler
from fakes.services.shared import shared_file

from rollouts.adapters.sockets import free_port

USER, PASSWORD = "pusher", "horse-battery-staple"
HTPASSWD = f"{USER}:$2b$04$abcdefghijklmnopqrstuub62nJ3/X6qMfRCn8MRcp8C6BVMTsCAK\n"
"""bcrypt of the password, as the registry wants it."""
PROGRAM = shutil.which("docker-registry")


class RegistryServer:
    """One registry; its content outlives its process."""

    def __init__(
        self,
        folder: Path,
        *,
        locked: bool = False,
        storage: Path | None = None,
        address: str = "127.0.0.1",
        encrypted: bool = False,
        tokens: dict[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.storage = storage or folder / "storage"
        self.host = f"{address}:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "info", "accesslog": {"disabled": False}},
            "storage": {"filesystem": {"rootdirectory": str(self.storage)}, "delete": {"enabled": True}},
            "http": {"addr": self.host},
        }
        if locked:
            (folder / "htpasswd").write_text(HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
        if encrypted:
            config["http"]["tls"] = {"certificate": str(self.certificate), "key": str(folder / "tls.key")}
            self_signed(address, self.certificate, folder / "tls.key")
        if tokens:
            config["auth"] = {"token": tokens}
        (folder / "config.yml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM or "docker-registry", "serve", str(self.folder / "config.yml")], stdout=log, stderr=log
            )
        host, port = self.host.split(":")
        for _ in range(200):
            with suppress(OSError), socket.create_connection((host, int(port))):
                return
            time.sleep(0.05)
        raise RuntimeError(self.log.read_text())

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    @property
    def certificate(self) -> Path:
        """What clients of an encrypted one must trust."""
        return self.folder / "tls.pem"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def push(self, layout: Path, name: str, repository: str) -> None:
        """With another tool than ours."""
        source, target = f"oci:{layout}:{name}", f"docker://{self.host}/{repository}"
        subprocess.run(
            ["skopeo", "copy", "-q", "--preserve-digests", "--dest-tls-verify=false", source, target], check=True
        )

    def pull(self, repository: str, layout: Path) -> Path:
        """With another tool than ours."""
        source, target = f"docker://{self.host}/{repository}", f"oci:{layout}:pulled"
        subprocess.run(
            ["skopeo", "copy", "-q", "--preserve-digests", "--src-tls-verify=false", source, target], check=True
        )
        return layout

    def tags(self, repository: str) -> list[str]:
        """Those that anyone would see."""
        return list(httpx.get(f"http://{self.host}/v2/{repository}/tags/list").json().get("tags") or [])

    def requests(self, method: str, part: str) -> int:
        """How often the registry's own access log has such a request."""
        return sum(f'"{method} ' in line and part in line for line in self.log.read_text().splitlines())


def self_signed(address: str, certificate: Path, key: Path) -> None:
    """A certificate that nobody vouches for, good for two days; the same for all of a run."""
    made = shared_file(f"certificate-{address}", lambda folder: _self_signed(address, folder))
    shutil.copy(made / "tls.crt", certificate)
    shutil.copy(made / "tls.key", key)


def _self_signed(address: str, folder: Path) -> None:
    folder.mkdir()
    names = ["-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "2", *files, *names]
    subprocess.run(made, check=True, capture_output=True)


ISSUER, SERVICE = "tokens", "registry"


class Tokens:
    """Gives a token for every scope that is asked for by the one user it knows."""

    def __init__(self, address: str, port: int, certificate: Path, key: Path) -> None:
        self.realm = f"https://{address}:{port}/token"
        self.asked: list[list[str]] = []
        """The scopes of each request, in order."""
        private = load_pem_private_key(key.read_bytes(), None)
        assert isinstance(private, rsa.RSAPrivateKey)
        self._key = private
        self._certificate = load_pem_x509_certificate(certificate.read_bytes()).public_bytes(Encoding.DER)

    @property
    def settings(self) -> dict[str, Any]:
        """What the registry must know to send people here."""
        return {"realm": self.realm, "service": SERVICE, "issuer": ISSUER}

    def token(self, scopes: list[str]) -> str:
        self.asked.append(scopes)
        access = [
            {"type": kind, "name": name, "actions": actions.split(",")}
            for kind, name, actions in (scope.split(":") for scope in scopes)
        ]
        now = int(time.time())
        header = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(self._certificate).decode()]}
        claims = {"iss": ISSUER, "aud": SERVICE, "sub": USER, "iat": now, "nbf": now - 5, "exp": now + 300}
        signed = f"{_part(header)}.{_part({**claims, 'jti': str(len(self.asked)), 'access': access})}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@contextmanager
def token_server(address: str, port: int, certificate: Path, key: Path) -> Iterator[Tokens]:
    """A server at https://ADDRESS:PORT/token while the block lasts."""
    tokens = Tokens(address, port, certificate, key)
    login = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == login
            scopes = parse_qs(urlparse(self.path).query).get("scope", [])
            body = json.dumps({"token": tokens.token(scopes)} if known else {}).encode()
            self.answer(body, 200 if known else 401)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer((address, port), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield tokens
        finally:
            server.shutdown()
            thread.join()


def _part(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
