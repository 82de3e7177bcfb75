"""A signature is the key's for these bytes, or it is refused; keys are never quoted."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from engine_images.errors import BadKey, BadSignature
from engine_images.signature import SigningKey, verify

PRIVATE = ec.generate_private_key(ec.SECP256R1())
PEM = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
KEY = SigningKey(PEM)


def test_what_was_signed_is_accepted() -> None:
    verify(KEY.public_pem, b"manifest", KEY.sign(b"manifest"))


def test_signing_again_gives_the_same_bytes() -> None:
    assert KEY.sign(b"manifest") == SigningKey(PEM).sign(b"manifest")


@pytest.mark.parametrize(
    "signature",
    [KEY.sign(b"other"), b"", b"no base64!", base64.b64encode(b"no signature")],
    ids=["of-something-else", "empty", "no-base64", "no-signature"],
)
def test_anything_else_is_refused(signature: bytes) -> None:
    with pytest.raises(BadSignature, match="another key, or changed"):
        verify(KEY.public_pem, b"manifest", signature)


def test_a_key_with_a_password_is_refused() -> None:
    locked = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open"))
    with pytest.raises(BadKey, match="has a password") as caught:
        SigningKey(locked)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----",
        ec.generate_private_key(ec.SECP384R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ],
    ids=["empty", "no-key", "another-curve", "rsa"],
)
def test_another_kind_of_key_is_refused_with_how_to_make_one(pem: bytes) -> None:
    with pytest.raises(BadKey, match="openssl ecparam") as caught:
        SigningKey(pem)
    assert "c2VjcmV0" not in str(caught.value)


def test_another_kind_of_public_key_is_refused() -> None:
    public = rsa.generate_private_key(65537, 2048).public_key()
    for pem in (b"nothing", public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)):
        with pytest.raises(BadKey, match="public key"):
            verify(pem, b"manifest", KEY.sign(b"manifest"))
