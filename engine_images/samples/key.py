"""The key for which engines seal samples, and what they are asked: `entrypoint.sampling` is the other side."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine_images.entrypoint.sampling import redaction
from engine_images.entrypoint.sampling.samples import END_PATH, INFO, SAMPLES_PATH, TOKEN_HEADER, SampleSettings
from tidegate.core.errors import OutsideError

REDACTED = redaction.KINDS
"""What engines can take out of a text."""
WHERE = SAMPLES_PATH
"""The path at which an engine gives away what it has kept."""
WHERE_IT_ENDS = END_PATH
"""The path at which it forgets that, and keeps no more."""
HEADER = TOKEN_HEADER
"""Of a request to either: the token."""


class SampleKey:
    """A delivery's: one key pair and one token, in its process and nowhere else."""

    def __init__(self) -> None:
        """A new one; there is no way to write it down."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._private = X25519PrivateKey.generate()
        self._public = self._private.public_key().public_bytes_raw()
        self._salt = secrets.token_hex(16)
        self.token = secrets.token_urlsafe(32)
        """Without it no engine gives anything away."""

    def open(self, sealed: bytes) -> bytes:
        """What an engine sealed.

        Raises:
            OutsideError: it was sealed for another key, or is damaged.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        theirs, nonce, content = sealed[:32], sealed[32:44], sealed[44:]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(theirs))
            key = HKDF(algorithm=SHA256(), length=32, salt=theirs + self._public, info=INFO).derive(shared)
            return AESGCM(key).decrypt(nonce, content, INFO)
        except (InvalidTag, ValueError) as error:
            raise OutsideError(
                "a sample is not sealed for this delivery", hint="does another delivery use the same engines?"
            ) from error

    def request(self, shares: Mapping[str, float], **kept: Any) -> str:
        """What engines read; it holds nothing secret. What is kept, and for how long, as in `SampleSettings`."""
        asked = SampleSettings(
            public_key=base64.b64encode(self._public).decode(),
            token_sha256=hashlib.sha256(self.token.encode()).hexdigest(),
            shares=dict(shares),
            salt=self._salt,
            **kept,
        )
        return json.dumps(asdict(asked))
