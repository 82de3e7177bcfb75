"""Artifacts and signatures in the words of the specification and of cosign."""

import json

from engine_images.oci.attachment import (
    PAYLOAD,
    artifact,
    referrers_tag,
    signature_tag,
    signed_payload,
    with_referrer,
    with_signature,
)
from engine_images.oci.model import MANIFEST, Descriptor
from engine_images.oci.reference import Reference

IMAGE = Descriptor.of(b"image", MANIFEST)
HEXADECIMAL = IMAGE.digest.removeprefix("sha256:")
WHERE = Reference.parse("registry.example/team/support-llm:7")


def test_an_artifact_says_what_it_is_and_what_it_is_about() -> None:
    document = json.loads(artifact(IMAGE, b"{}", "application/vnd.cyclonedx+json").manifest)

    assert document["artifactType"] == "application/vnd.cyclonedx+json"
    assert document["subject"] == IMAGE.to_dict()
    assert document["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"


def test_a_list_of_referrers_holds_each_once() -> None:
    one, two = (artifact(IMAGE, content, "application/json") for content in (b"1", b"2"))

    index = with_referrer(with_referrer(with_referrer({}, one), two), one)

    assert len(index["manifests"]) == 2
    assert {entry["artifactType"] for entry in index["manifests"]} == {"application/json"}


def test_names_are_those_that_others_look_for() -> None:
    assert referrers_tag(IMAGE) == f"sha256-{HEXADECIMAL}"
    assert signature_tag(IMAGE) == f"sha256-{HEXADECIMAL}.sig"


def test_the_payload_names_manifest_and_repository_without_the_tag() -> None:
    assert json.loads(signed_payload(IMAGE, WHERE)) == {
        "critical": {
            "identity": {"docker-reference": "registry.example/team/support-llm"},
            "image": {"docker-manifest-digest": IMAGE.digest},
            "type": "cosign container image signature",
        },
        "optional": None,
    }


def test_other_people_s_signatures_stay() -> None:
    payload = signed_payload(IMAGE, WHERE)
    theirs = with_signature({}, payload, b"theirs")

    both = with_signature(json.loads(theirs.manifest), payload, b"ours")
    again = with_signature(json.loads(both.manifest), payload, b"ours")

    layers = json.loads(both.manifest)["layers"]
    assert [layer["annotations"]["dev.cosignproject.cosign/signature"] for layer in layers] == ["theirs", "ours"]
    assert {layer["mediaType"] for layer in layers} == {PAYLOAD}
    assert again == both
    diff_ids = json.loads(both.blobs[0][1])["rootfs"]["diff_ids"]
    assert diff_ids == [layer["digest"] for layer in layers]
