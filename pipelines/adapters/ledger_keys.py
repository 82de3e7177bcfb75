"""Keys for ledgers, from files: the one that signs, and those that are believed."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from pathlib import Path

from engine_images.errors import BadKey, BadSignature
from engine_images.signature import SigningKey, read_public_key, verify
from pipelines.spec.trust import Trusted
from registry.chain import Believed, Seal
from tidegate.core.errors import UsageError


def known_by(public_pem: bytes) -> str:
    """The first 16 digits of the SHA-256 of a public key's PEM: enough to tell keys apart, none to trust."""
    return sha256(public_pem.strip()).hexdigest()[:16]


def seal_from(path: str | None) -> Seal | None:
    """The key in that file, which signs in base64; None where none is named.

    Raises:
        UsageError: it cannot be read.
        BadKey: it is none, or of another kind.
    """
    if not path:
        return None
    key = SigningKey(_read(Path(path), "the key of the ledger"))
    return Seal(known_by(key.public_pem), lambda content: key.sign(content).decode())


def believed_by(trusted: Trusted) -> Believed | None:
    """The keys that a trust file names for ledgers; None when it names none.

    Raises:
        UsageError: one of them cannot be read, or is no public key.
    """
    paths = [trusted.folder / path for path in trusted.trust.ledger.keys]
    pems = [_read(path, "a key of `ledger.keys`") for path in paths]
    for path, pem in zip(paths, pems, strict=True):
        try:
            read_public_key(pem)
        except BadKey as error:
            raise UsageError(f"{path}: {error}") from error
    return {known_by(pem): partial(_signed, pem) for pem in pems} or None


def _signed(pem: bytes, content: bytes, signature: str) -> bool:
    try:
        verify(pem, content, signature.encode())
    except (BadSignature, BadKey, UnicodeEncodeError):
        return False
    return True


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{what} cannot be read from {path}: {error.strerror}", hint="check its path and its permissions"
        ) from error
