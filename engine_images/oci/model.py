"""The documents of the OCI image specification (v1.1) that an engine's image needs, and an image made of them.

An image is the layers of a base, which brings the operating system, Python and vLLM, with ours on top, and how to run
it. Pure; the same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from engine_images.errors import BrokenImage
from tidegate.core.model import Value
from tidegate.core.text import foreign

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


@contextmanager
def documents() -> Iterator[None]:
    """Read documents of an image, of whose shape nothing is known.

    Raises:
        BrokenImage: they are not as they should be, whatever parsing them raised.
    """
    hint = "push or pull it again, or name another image"
    with foreign(lambda why: BrokenImage(f"a document of the image is not one of OCI's: {why}", hint=hint)):
        yield


class Descriptor(Value):
    """What content is, and the digest that proves it."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    media_type: str = Field(alias="mediaType")
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0)
    """In bytes."""
    annotations: Annotated[Mapping[str, str], BeforeValidator(lambda said: said or {})] = {}

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
            return cls.model_validate(document)
        except ValidationError:
            raise BrokenImage(
                f"no descriptor of a blob with a SHA-256 digest: {str(document)[:200]}", hint="push or pull it again"
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """With the specification's keys."""
        return self.model_dump(by_alias=True, exclude_defaults=True)


class Runtime(Value):
    """How a container of the image runs."""

    entrypoint: tuple[str, ...]
    environment: Mapping[str, str] = {}
    workdir: str = "/"
    labels: Mapping[str, str] = {}


class Platform(Value):
    """What a machine must be to run the image."""

    architecture: str
    """As Go writes it: amd64, arm64."""
    os: str = "linux"


def canonical(document: Document) -> bytes:
    """The one way in which we write JSON, so that the same document has the same digest."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


INDEXES = (INDEX, DOCKER_INDEX)
MANIFESTS = (MANIFEST, DOCKER_MANIFEST)

MEANS = {"application/vnd.docker.image.rootfs.diff.tar.gzip": "application/vnd.oci.image.layer.v1.tar+gzip"}
"""Docker's word and the specification's for the same bytes; an OCI manifest is to hold the second."""


class Base(Value):
    """What an engine's image continues. Only documents: the layers stay where they are until somebody needs them."""

    platform: Platform
    reference: str = ""
    """Where it can be pulled, with its digest; empty for one from a layout, whose path means nothing elsewhere."""
    digest: str = ""
    """Of its manifest; empty for no base at all."""
    layers: tuple[Descriptor, ...] = ()
    config: Document = Field(default_factory=dict)
    layout: Path | None = None
    """The layout on this machine that holds its layers; None when they are in a registry."""

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a container of it."""
        return _variables((self.config.get("config") or {}).get("Env") or ())


def platform_of(config: Document) -> Platform:
    """What the image with this configuration runs on."""
    return Platform(architecture=config.get("architecture", ""), os=config.get("os", ""))


def manifest_for(index: Document, platform: Platform) -> Descriptor:
    """The image for `platform` among those of an image index.

    Raises:
        BrokenImage: when there is none; names those that are there.
    """
    offered = [
        (entry["platform"], Descriptor.read(entry))
        for entry in index.get("manifests", ())
        if entry.get("mediaType") in MANIFESTS and "platform" in entry
    ]
    for words, descriptor in offered:
        if platform_of(words) == platform:
            return descriptor.model_copy(update={"annotations": {}})
    known = ", ".join(f"{words.get('os')}/{words.get('architecture')}" for words, _ in offered) or "no platform"
    raise BrokenImage(f"the base has no image for {platform.os}/{platform.architecture}", hint=f"it has: {known}")


CREATED = "1970-01-01T00:00:00Z"
"""An image that knew when it was made would be another one each time."""

AUTHOR = "tidegate"

CARRIED = ("User", "ExposedPorts", "Volumes", "StopSignal", "Labels")
"""What a base image says of containers and ours does not contradict."""


def config_of(base: Document, layers: Sequence[Descriptor], runtime: Runtime, platform: Platform) -> dict[str, Any]:
    """The image's configuration: the base's, continued; our layers carry their titles. Empty without a base."""
    before = base.get("config") or {}
    return {
        "architecture": platform.architecture,
        "os": platform.os,
        "created": CREATED,
        "config": {key: before[key] for key in CARRIED if before.get(key)} | _container(before, runtime),
        "rootfs": {
            "type": "layers",
            # As ours are not compressed, they are called the same inside.
            "diff_ids": [*base.get("rootfs", {}).get("diff_ids", ()), *(layer.digest for layer in layers)],
        },
        "history": [
            *base.get("history", ()),
            *(
                {"created": CREATED, "created_by": f"{AUTHOR}: {layer.annotations[TITLE]}", "author": AUTHOR}
                for layer in layers
            ),
        ],
    }


def _container(before: Document, runtime: Runtime) -> dict[str, Any]:
    # The base's first; ours win.
    environment = _variables(before.get("Env") or ()) | dict(sorted(runtime.environment.items()))
    container = {
        "Entrypoint": list(runtime.entrypoint),
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "WorkingDir": runtime.workdir,
        "Labels": {**(before.get("Labels") or {}), **runtime.labels},
    }
    return {key: value for key, value in container.items() if value}


def _variables(entries: Sequence[str]) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)
