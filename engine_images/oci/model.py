"""The words of the OCI image specification (v1.1) that an engine's image needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError

from engine_images.errors import BrokenImage
from tidegate.core.model import Value

Document = Mapping[str, Any]
"""JSON of the specification as it was read; a base image's may hold keys that we do not know and must keep."""

Source = Path | bytes
"""A file on disk, or its content."""

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
"""Not compressed: the bytes of a compressed layer depend on who compressed it, and weights do not shrink."""

DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
"""What registries still answer for older base images; the keys we read are the same."""

REFERENCE = "org.opencontainers.image.ref.name"
"""The annotation that names an image within a layout."""
TITLE = "org.opencontainers.image.title"
BASE_LAYER = "base layer"
"""What people are told of a layer without a title: ours have one."""
BASE_DIGEST = "org.opencontainers.image.base.digest"
BASE_NAME = "org.opencontainers.image.base.name"
"""The annotation that says where the base image can be pulled."""


class Descriptor(Value):
    """What content is, and the digest that proves it."""

    media_type: str
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0)
    """In bytes."""
    annotations: Mapping[str, str] = {}

    @classmethod
    def of(cls, content: bytes, media_type: str) -> Self:
        """The descriptor of this content."""
        return cls(media_type=media_type, digest=f"sha256:{hashlib.sha256(content).hexdigest()}", size=len(content))

    @classmethod
    def read(cls, document: Document) -> Self:
        """As it stands in a manifest or an index; keys that nobody here uses are left out.

        Raises:
            BrokenImage: it is no descriptor, or of another digest than SHA-256.
        """
        try:
            return cls(
                media_type=document["mediaType"],
                digest=document["digest"],
                size=document["size"],
                annotations=document.get("annotations") or {},
            )
        except (KeyError, TypeError, AttributeError, ValidationError):
            raise BrokenImage(f"no descriptor of a blob with a SHA-256 digest: {str(document)[:200]}") from None

    def to_dict(self) -> dict[str, Any]:
        """With the specification's keys."""
        annotations = {"annotations": dict(self.annotations)} if self.annotations else {}
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size, **annotations}


class Layer(Value):
    """One layer of files, and why it is a layer of its own."""

    title: str
    """What it holds, such as `compile cache`."""
    descriptor: Descriptor

    @property
    def diff_id(self) -> str:
        """The digest of the uncompressed tar: as ours are not compressed, the same."""
        return self.descriptor.digest


class Runtime(Value):
    """How a container of the image runs."""

    entrypoint: tuple[str, ...]
    environment: Mapping[str, str] = {}
    workdir: str = "/"
    user: str = ""
    """Empty: as the base image says."""
    labels: Mapping[str, str] = {}


class Platform(Value):
    """What a machine must be to run the image."""

    architecture: str
    """As Go writes it: amd64, arm64."""
    os: str = "linux"


def canonical(document: Document) -> bytes:
    """The one way in which we write JSON, so that the same document has the same digest."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
