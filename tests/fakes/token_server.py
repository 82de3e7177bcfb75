"""The other half of how public registries log people in: a server that gives tokens for what is asked for.

It speaks https, because nobody sends it a password otherwise, and signs for Debian's `docker-registry` to believe.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from fakes.registry_server import PASSWORD, USER

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

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == login
            scopes = parse_qs(urlparse(self.path).query).get("scope", [])
            body = json.dumps({"token": tokens.token(scopes)} if known else {}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

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
