"""Signatures next to an image, and what is refused without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.engines.engine_image import new_signing_key, small_engine

from engine_images.adapters.oci_layout import OciLayout
from engine_images.errors import BadKey, BadSignature
from engine_images.oci.model import MANIFEST, Descriptor
from engine_images.oci.reading import prove_image
from engine_images.oci.reference import ImageReference
from engine_images.oci.signatures import PAYLOAD, signed_payload, signer_of_image, with_signature
from engine_images.signature import SigningKey

IMAGE = Descriptor.of(b"image", MANIFEST)
WHERE = ImageReference.parse("registry.example/team/support-llm:7")


def test_other_people_s_signatures_stay() -> None:
    payload = signed_payload(IMAGE, WHERE)
    theirs, _ = with_signature({}, payload, b"theirs")

    both, blobs = with_signature(json.loads(theirs), payload, b"ours")
    again, _ = with_signature(json.loads(both), payload, b"ours")

    layers = json.loads(both)["layers"]
    assert [layer["annotations"]["dev.cosignproject.cosign/signature"] for layer in layers] == ["theirs", "ours"]
    assert {layer["mediaType"] for layer in layers} == {PAYLOAD}
    assert again == both
    diff_ids = json.loads(blobs[0][1])["rootfs"]["diff_ids"]
    assert diff_ids == [layer["digest"] for layer in layers]


DIGEST, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64


OURS, THEIRS = new_signing_key(), new_signing_key()
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


@pytest.mark.parametrize(
    ("key", "words"),
    [(None, "the engine's manifest is not signed"), (OURS, "a layout holds no signature")],
)
def test_an_image_is_proven_by_both_signatures_or_not_at_all(
    tmp_path: Path, key: SigningKey | None, words: str
) -> None:
    small_engine(tmp_path, key=key)
    with pytest.raises(BadSignature, match=words):
        prove_image(OciLayout(tmp_path), KEYS)
