"""An OIDC issuer on the loopback: real keys, real tokens, and its public keys where a JWKS is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def a_key(algorithm: str) -> Key:
    """A key of its own."""
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class OidcIssuer:
    """Signs tokens with its key, which is served beside those in `more`."""

    url: str
    algorithm: str = "RS256"
    key: Key = field(default_factory=lambda: a_key("RS256"))
    served: int = 0

    @property
    def jwks(self) -> str:
        """What is served."""
        public = self.key.public_key()
        own: Any = ECAlgorithm if self.algorithm == "ES256" else RSAAlgorithm
        named = json.loads(own.to_jwk(public)) | {"kid": "one", "use": "sig", "alg": self.algorithm}
        return json.dumps({"keys": [named]})

    def token(self, at: datetime, *, seconds: float = 300, key: Key | None = None, **claims: Any) -> str:
        """A token of `ann@example.com` for tidegate, except for what is said."""
        usual = {
            "iss": self.url, "aud": "tidegate", "email": "ann@example.com", "sub": "00u1", "iat": at.timestamp(),
            "exp": at.timestamp() + seconds,
        }  # fmt: skip
        named = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(named, key or self.key, algorithm=self.algorithm, headers={"kid": "one"})


@contextmanager
def oidc_issuer(algorithm: str = "RS256") -> Iterator[OidcIssuer]:
    """One that answers at `URL/jwks` until the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.served += 1
            body = issuer.jwks.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = OidcIssuer(f"http://127.0.0.1:{server.server_port}", algorithm, a_key(algorithm))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def now() -> datetime:
    """To the second, as tokens have it."""
    return datetime.now(UTC).replace(microsecond=0)
