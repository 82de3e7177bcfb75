"""Whose an image is: what a signature covers, and what is looked at where none does."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fakes.engine_image import STARTED, real_engine

from engine_images.adapters.engine_root import entrypoint_files
from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.oci_read import InLayout
from engine_images.adapters.oci_verify import prove_image
from engine_images.errors import BadKey, BadSignature
from engine_images.oci.attachment import signed_payload
from engine_images.oci.model import Descriptor
from engine_images.oci.reference import Reference
from engine_images.oci.signed import signer_of_image
from engine_images.signature import SigningKey

DIGEST, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
WHERE = Reference.parse("registry.example/team/support-llm:7")


def new_key() -> SigningKey:
    key = ec.generate_private_key(ec.SECP256R1())
    return SigningKey(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


OURS, THEIRS = new_key(), new_key()
KEYS = {"ours.pub": OURS.public_pem}


def signature(key: SigningKey, digest: str = DIGEST) -> tuple[bytes, bytes]:
    payload = signed_payload(Descriptor(media_type="", digest=digest, size=0), WHERE)
    return payload, key.sign(payload)


def test_one_good_signature_among_others_is_enough() -> None:
    assert signer_of_image(DIGEST, [signature(THEIRS), signature(OURS)], KEYS) == "ours.pub"


def test_either_of_two_keys_is_believed_while_one_replaces_the_other() -> None:
    keys = {"old.pub": THEIRS.public_pem, **KEYS}
    assert signer_of_image(DIGEST, [signature(THEIRS)], keys) == "old.pub"
    assert signer_of_image(DIGEST, [signature(OURS)], keys) == "ours.pub"


@pytest.mark.parametrize(
    ("signatures", "words"),
    [
        ([], "is not signed"),
        ([signature(THEIRS)], "by none of the keys ours.pub"),
        # Taken from another image of ours.
        ([signature(OURS, OTHER)], f"carries a signature of {OTHER}"),
        ([(signature(OURS)[0], signature(OURS, OTHER)[1])], "by none of the keys"),
        ([(b"{}", OURS.sign(b"{}"))], "of nothing that can be read"),
        ([(signature(OURS)[0], b"no base64!")], "by none of the keys"),
    ],
)
def test_what_does_not_prove_this_image_is_refused(signatures: list[tuple[bytes, bytes]], words: str) -> None:
    with pytest.raises(BadSignature, match=words):
        signer_of_image(DIGEST, signatures, KEYS)


def test_a_key_that_is_none_is_told_as_such() -> None:
    with pytest.raises(BadKey):
        signer_of_image(DIGEST, [signature(OURS)], {"bad.pub": b"no key"})


def in_layout(root: Path, **other: object) -> InLayout:
    real_engine(root, key=OURS, **other)
    return InLayout(OciLayout(root), None)


def test_in_a_layout_the_rest_is_compared_with_our_own(tmp_path: Path) -> None:
    proof = prove_image(in_layout(tmp_path), KEYS)
    assert (proof.manifest_by, proof.image_by) == ("ours.pub", None)


def test_a_good_manifest_with_another_entrypoint_is_refused(tmp_path: Path) -> None:
    files = {**entrypoint_files(), "tidegate_entrypoint/verify.py": b"def prove_signature(*_): pass\n"}
    with pytest.raises(BadSignature, match=r"tidegate_entrypoint/verify\.py is not this tidegate's own"):
        prove_image(in_layout(tmp_path, entrypoint=files), KEYS)


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (STARTED.model_copy(update={"entrypoint": ("/bin/sh", "-c", "miner")}), "the first process is"),
        (STARTED.model_copy(update={"user": "root"}), "the user is root"),
        (STARTED.model_copy(update={"user": "0:0"}), "the user is 0:0"),
    ],
)
def test_a_good_manifest_with_another_first_process_or_user_is_refused(
    tmp_path: Path, runtime: object, words: str
) -> None:
    with pytest.raises(BadSignature, match=words):
        prove_image(in_layout(tmp_path, runtime=runtime), KEYS)


def test_a_manifest_of_nobody_is_refused(tmp_path: Path) -> None:
    real_engine(tmp_path)
    with pytest.raises(BadSignature, match="the engine's manifest is not signed"):
        prove_image(InLayout(OciLayout(tmp_path), None), KEYS)
