"""People and their proofs: words that are believed, real SSH keys, and an OIDC issuer with real keys and tokens.

The issuer's public keys are where a JWKS is served, on the loopback.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from fakes.services.http import page
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from pipelines.spec.trust import ApproversSpec
from pipelines.statements import Person, Proof, Unproven
from tidegate.core.errors import OutsideError


@dataclass
class FakeIdentities:
    """`ProvenIdentities` without keys; `forged` is believed by nobody, and every question is counted."""

    approvers: ApproversSpec = field(default_factory=ApproversSpec)
    away: bool = False
    """Whether nothing can be checked now."""
    asked: list[str] = field(default_factory=list)

    def verify(self, proof: Proof, given: datetime) -> Person:
        self.asked.append(proof.credential)
        if self.away:
            raise OutsideError("cannot fetch the issuer's keys")
        if proof.credential == "forged":
            raise Unproven("no key of allowed_signers made the signature")
        name, _, groups = proof.credential.partition(" of ")
        known = frozenset(groups.split())
        return Person(identity=name, how="SSH key SHA256:x", groups=known, listed=bool(known))


@dataclass(frozen=True)
class FakeProver:
    """`Prover` of one of those people."""

    credential: str

    def __call__(self, statement: str) -> Proof:
        return Proof(kind="ssh", statement=statement, credential=self.credential)


Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def a_key(algorithm: str) -> Key:
    """A key of its own."""
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class OidcIssuer:
    """Signs tokens with its key, which is served besides those in `more`."""

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
            "iss": self.url, "aud": "tidegate", "email": "ann@example.com", "email_verified": True, "sub": "00u1",
            "iat": at.timestamp(), "exp": at.timestamp() + seconds,
        }  # fmt: skip
        named = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(named, key or self.key, algorithm=self.algorithm, headers={"kid": "one"})


@contextmanager
def oidc_issuer(algorithm: str = "RS256") -> Iterator[OidcIssuer]:
    """One that answers at `URL/jwks` until the end."""

    def jwks() -> str:
        issuer.served += 1
        return issuer.jwks

    with page(jwks, "application/json") as address:
        issuer = OidcIssuer(f"http://{address}", algorithm, a_key(algorithm))
        yield issuer


def now() -> datetime:
    """To the second, as tokens have it."""
    return datetime.now(UTC).replace(microsecond=0)


def a_key_of(name: str, folder: Path) -> Path:
    """A private key without a passphrase."""
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)], check=True)
    return key


def allow(file: Path, principals: str, key: Path, options: str = "") -> None:
    """One more line of the file of allowed signers."""
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    line = " ".join(filter(None, (principals, options, public)))
    file.write_text((file.read_text() if file.exists() else "") + line + "\n")


def fingerprint(key: Path) -> str:
    """As ssh-keygen shows it."""
    said = subprocess.run(["ssh-keygen", "-l", "-f", str(key)], capture_output=True, text=True, check=True).stdout
    return said.split()[1]
