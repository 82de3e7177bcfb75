"""Keys for ledgers, from files: the one that signs, and those that are believed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from engine_images.errors import BadKey, BadSignature
from engine_images.signature import SigningKey, verify
from pipelines.spec.trust import Trusted
from tidegate.core.errors import UsageError


class KeySeal:
    """A `Seal`: one private key."""

    def __init__(self, pem: bytes) -> None:
        """Reads the key.

        Raises:
            BadKey: it is none, or of another kind.
        """
        self._key = SigningKey(pem)
        self.key = known_by(self._key.public_pem)

    def sign(self, content: bytes) -> str:
        """In base64."""
        return self._key.sign(content).decode()


class BelievedKeys:
    """`Believed`: public keys by what they are known by."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """`keys` are in PEM."""
        self._keys = dict(keys)

    def knows(self, key: str) -> bool:
        """Whether it is one of them."""
        return key in self._keys

    def holds(self, key: str, content: bytes, signature: str) -> bool:
        """Whether that key made the signature."""
        try:
            verify(self._keys[key], content, signature.encode())
        except (BadSignature, BadKey, UnicodeEncodeError):
            return False
        return True


def known_by(public_pem: bytes) -> str:
    """The first 16 digits of the SHA-256 of a public key's PEM: enough to tell keys apart, none to trust."""
    return sha256(public_pem.strip()).hexdigest()[:16]


def seal_from(path: str | None) -> KeySeal | None:
    """The key in that file; None where none is named.

    Raises:
        UsageError: it cannot be read.
    """
    return KeySeal(_read(Path(path), "the key of the ledger")) if path else None


def believed_by(trusted: Trusted) -> BelievedKeys | None:
    """The keys that a trust file names for ledgers; None when it names none.

    Raises:
        UsageError: one of them cannot be read, or is no public key.
    """
    paths = [trusted.folder / path for path in trusted.trust.ledger.keys]
    pems = [_read(path, "a key of `ledger.keys`") for path in paths]
    for path, pem in zip(paths, pems, strict=True):
        try:
            with suppress(BadSignature):
                verify(pem, b"", b"")
        except BadKey as error:
            raise UsageError(f"{path}: {error}") from error
    return BelievedKeys({known_by(pem): pem for pem in pems}) if pems else None


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{what} cannot be read from {path}: {error.strerror}", hint="check its path and its permissions"
        ) from error
