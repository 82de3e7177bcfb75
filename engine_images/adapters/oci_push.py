"""Brings an image from a layout into a registry, and hangs its signature on it there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeVar

from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.oci_read import AccessOf
from engine_images.adapters.oci_registry import Body, Repository
from engine_images.errors import BadReference, BrokenImage, NotThere, RegistryRefused, RegistryUnavailable
from engine_images.oci.model import BASE_LAYER, BASE_NAME, TITLE, Descriptor, Document, documents
from engine_images.oci.reference import FORM, ImageReference
from engine_images.oci.signatures import signature_tag, signed_payload, with_signature
from engine_images.signature import SigningKey
from tidegate.core.model import Value


class TransferKind(StrEnum):
    """How a blob came into the repository."""

    THERE = "there"
    """It was there before."""
    MOUNTED = "mounted"
    """The registry took it from the base's repository."""
    COPIED = "copied"
    """From the base's registry, through this machine."""
    SENT = "sent"


class Transfer(Value):
    """One blob, on its way or arrived."""

    title: str
    """What it holds: a layer's title, `base layer`, `configuration`."""
    digest: str
    size: int
    """In bytes."""
    how: TransferKind
    done: int
    """Bytes that have gone so far; `size` once it is there."""


class PushResult(Value):
    """What a push did."""

    reference: str
    """With the digest that the registry gave back."""
    transfers: tuple[Transfer, ...]


Progress = Callable[[Transfer], None]


PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between the attempts for one blob; after the last the push breaks off."""
REPORT_BYTES = 64 << 20
"""A long upload says how far it is each time so much has gone, and a very long one ten times in all."""

T = TypeVar("T")
Sleep = Callable[[float], None]


def push_image(  # noqa: PLR0917
    layout: OciLayout,
    image: Descriptor,
    target: ImageReference,
    access: AccessOf,
    progress: Progress = lambda _: None,
    sleep: Sleep = time.sleep,
) -> PushResult:
    """Bring `image` to `target`, and prove that it is there.

    Args:
        layout: holds the image. Layers of its base may be missing: they come from the registry that the
            image's annotations name.
        image: its manifest.
        target: repository and tag.
        access: how to speak to a registry.
        progress: told of every blob, and of long ones while they go.
        sleep: between attempts.

    Raises:
        BadReference: `target` has no tag.
        BrokenImage: a blob is not what its digest says.
        RegistryRefused: the registry will not have it.
        RegistryUnavailable: it went away and did not come back in time; a second push goes on.
    """
    if not target.tag or target.digest:
        raise BadReference(f"`{target}` names no tag to push to", hint=FORM)
    content = layout.content(image)
    with documents():
        manifest = json.loads(content)
        layers, base = [Descriptor.read(layer) for layer in manifest["layers"]], None
        if named := manifest.get("annotations", {}).get(BASE_NAME):
            base = ImageReference.parse(named)
        config = Descriptor.read(manifest["config"])
    with Repository(target, access(target)) as repository:
        push = _Push(layout, repository, base, access, progress, sleep)
        transfers = [push.bring(layer, layer.annotations.get(TITLE, BASE_LAYER)) for layer in layers]
        transfers.append(push.bring(config, "configuration"))
        with_retries(partial(repository.publish, target.tag, content), sleep)
        found, _ = with_retries(partial(repository.manifest, target.tag), sleep)
    if found.digest != image.digest:
        raise RegistryRefused(
            f"{target} is {found.digest} after the push; expected {image.digest}: somebody else pushed",
            hint="push again, or to another tag",
        )
    return PushResult(reference=str(target.model_copy(update={"digest": image.digest})), transfers=tuple(transfers))


def with_retries(action: Callable[[], T], sleep: Sleep) -> T:
    """Do `action`; again, after longer and longer pauses, while the registry is away."""
    for pause in PAUSES:
        try:
            return action()
        except RegistryUnavailable:
            sleep(pause)
    return action()


@dataclass(frozen=True)
class _Push:
    """The blobs of one push."""

    layout: OciLayout
    repository: Repository
    base: ImageReference | None
    access: AccessOf
    progress: Progress
    sleep: Sleep

    def bring(self, blob: Descriptor, title: str) -> Transfer:
        """Let the repository have `blob`, in the way that costs least."""
        how = with_retries(partial(self._bring, blob, title), self.sleep)
        transfer = Transfer(title=title, digest=blob.digest, size=blob.size, how=how, done=blob.size)
        self.progress(transfer)
        return transfer

    def _bring(self, blob: Descriptor, title: str) -> TransferKind:
        if self.repository.has(blob.digest):
            return TransferKind.THERE
        near = self.base is not None and self.base.registry == self.repository.reference.registry
        if title == BASE_LAYER and self.base and near and self.repository.mount(self.base.repository, blob.digest):
            return TransferKind.MOUNTED
        if self.layout.has(blob):
            self.repository.send(
                Body(blob, partial(self.layout.pieces, blob), self._sending(blob, title, TransferKind.SENT))
            )
            return TransferKind.SENT
        if self.base is None:
            raise BrokenImage(
                f"{self.layout.root} has no blob {blob.digest}, and names no registry that has it",
                hint="build it again with a --base from a registry",
            )
        with Repository(self.base, self.access(self.base)) as source:
            self.repository.send(
                Body(blob, partial(source.blob, blob), self._sending(blob, title, TransferKind.COPIED))
            )
        return TransferKind.COPIED

    def _sending(self, blob: Descriptor, title: str, how: TransferKind) -> Callable[[int], None]:
        told, step = 0, max(REPORT_BYTES, blob.size // 10)

        def sent(done: int) -> None:
            nonlocal told
            if done - told >= step and done < blob.size:
                told = done
                self.progress(Transfer(title=title, digest=blob.digest, size=blob.size, how=how, done=done))

        return sent


def sign_image(
    image: Descriptor, where: ImageReference, key: SigningKey, access: AccessOf, sleep: Sleep = time.sleep
) -> str:
    """Add a signature as cosign reads it, besides those that are there; returns its tag.

    Raises:
        RegistryRefused: the registry will not have it.
        RegistryUnavailable: it went away and did not come back in time.
    """
    payload, tag = signed_payload(image, where), signature_tag(image.digest)

    def add(repository: Repository) -> None:
        before: Document = {}
        with suppress(NotThere):
            before = json.loads(repository.manifest(tag)[1])
        manifest, blobs = with_signature(before, payload, key.sign(payload))
        for descriptor, content in blobs:
            if not repository.has(descriptor.digest):
                repository.send(Body(descriptor, partial(iter, (content,))))
        repository.publish(tag, manifest)

    with Repository(where, access(where)) as repository:
        with_retries(partial(add, repository), sleep)
    return tag
