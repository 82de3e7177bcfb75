"""What is hung on an image after it was pushed, in the formats that others look for. Pure.

An SBOM is an artifact that refers to the image (specification 1.1); a signature is what cosign reads.
"""

from __future__ import annotations

from typing import Any

from engine_images.oci.model import CONFIG, INDEX, MANIFEST, Descriptor, Document, canonical
from engine_images.oci.reference import Reference
from tidegate.core.model import Value

EMPTY = "application/vnd.oci.empty.v1+json"
PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"


class Attachment(Value):
    """A manifest and the blobs it needs."""

    manifest: bytes
    blobs: tuple[tuple[Descriptor, bytes], ...]


def artifact(subject: Descriptor, content: bytes, media_type: str) -> Attachment:
    """A document about `subject`, found by whoever asks a registry what refers to it."""
    config, document = Descriptor.of(b"{}", EMPTY), Descriptor.of(content, media_type)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": media_type,
        "config": config.to_dict(),
        "layers": [document.to_dict()],
        "subject": subject.to_dict(),
    }
    return Attachment(manifest=canonical(manifest), blobs=((config, b"{}"), (document, content)))


def referrers_tag(image: Descriptor) -> str:
    """Where the list of what refers to an image is kept in a registry that does not keep it by itself."""
    return image.digest.replace(":", "-")


def with_referrer(index: Document, attachment: Attachment) -> dict[str, Any]:
    """The list with one more entry; `index` is empty when there is no list yet."""
    descriptor = Descriptor.of(attachment.manifest, MANIFEST)
    kind = attachment.blobs[-1][0].media_type
    others = [entry for entry in index.get("manifests", ()) if entry["digest"] != descriptor.digest]
    manifests = [*others, {**descriptor.to_dict(), "artifactType": kind}]
    return {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}


def signature_tag(image: Descriptor) -> str:
    """Where cosign looks for the signatures of an image."""
    return f"{referrers_tag(image)}.sig"


def signed_payload(image: Descriptor, where: Reference) -> bytes:
    """What is signed: this manifest, in this repository, in the words of the `simple signing` format."""
    critical = {
        "identity": {"docker-reference": f"{where.registry}/{where.repository}"},
        "image": {"docker-manifest-digest": image.digest},
        "type": "cosign container image signature",
    }
    return canonical({"critical": critical, "optional": None})


def with_signature(before: Document, payload: bytes, signature: bytes) -> Attachment:
    """The signatures of an image with one more; `before` is empty when it has none yet."""
    signed = Descriptor.of(payload, PAYLOAD).model_copy(update={"annotations": {SIGNATURE: signature.decode()}})
    others = [layer for layer in before.get("layers", ()) if layer["annotations"] != signed.annotations]
    layers = [*others, signed.to_dict()]
    config = canonical(_signature_config([layer["digest"] for layer in layers]))
    described = Descriptor.of(config, CONFIG)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described.to_dict(), "layers": layers}
    return Attachment(manifest=canonical(manifest), blobs=((described, config), (signed, payload)))


def _signature_config(payloads: list[str]) -> Document:
    """A configuration, because an image must have one."""
    return {"architecture": "", "os": "", "config": {}, "rootfs": {"type": "layers", "diff_ids": payloads}}
