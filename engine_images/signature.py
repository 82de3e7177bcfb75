"""Signatures with a key of one's own: ECDSA on P-256 with SHA-256, as `openssl dgst` and cosign make and check them.

The nonce follows from key and content (RFC 6979): the same manifest signed again gives the same bytes, so that
a signed image is as reproducible as one without.
"""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from engine_images.errors import BadKey, BadSignature

HOW_TO_MAKE_A_KEY = "make one: openssl ecparam -name prime256v1 -genkey -noout -out engine.key"


class SigningKey:
    """A private key; its text never leaves this object."""

    def __init__(self, pem: bytes) -> None:
        """Read the key from PEM.

        Raises:
            BadKey: not PEM, with a password, or another kind of key.
        """
        try:
            key = load_pem_private_key(pem, None)
        # What is wrong with a secret is not repeated: libraries quote what they could not read.
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise BadKey("the signing key is no PEM, or has a password", hint=HOW_TO_MAKE_A_KEY) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise BadKey("the signing key is of another kind than ECDSA on P-256", hint=HOW_TO_MAKE_A_KEY)
        self._key = key

    def sign(self, content: bytes) -> bytes:
        """The signature in base64, as cosign writes it into files and annotations."""
        return base64.b64encode(self._key.sign(content, ec.ECDSA(SHA256(), deterministic_signing=True)))

    @property
    def public_pem(self) -> bytes:
        """What those need who verify."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_public_key(pem: bytes) -> ec.EllipticCurvePublicKey:
    """The key.

    Raises:
        BadKey: it is none, such as a private one, or of another kind.
    """
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise BadKey(
            "the public key cannot be read: no PEM", hint="write it with `openssl ec -in engine.key -pubout`"
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadKey(
            "the public key is of another kind than ECDSA on P-256",
            hint="name the public half of such a key (openssl ec -pubout)",
        )
    return key


def verify(public_pem: bytes, content: bytes, signature: bytes) -> None:
    """Return when `signature` (base64) is the key's for `content`.

    Raises:
        BadKey: the public key is none, or of another kind.
        BadSignature: it is not.
    """
    try:
        read_public_key(public_pem).verify(base64.b64decode(signature, validate=True), content, ec.ECDSA(SHA256()))
    except (InvalidSignature, binascii.Error):
        raise BadSignature(
            "signed by another key, or changed since it was signed", hint="build and push it again with --sign-key"
        ) from None
