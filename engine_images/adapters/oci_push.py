"""An image of a layout goes to a registry: its blobs first, its manifest last.

A blob that the registry has is not sent again, so a push that broke off goes on where it was. Until the manifest
is there nobody sees anything of the image.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.oci_registry import Access, Body, Repository
from engine_images.errors import BadReference, BrokenImage, RegistryRefused, RegistryUnavailable
from engine_images.oci.model import BASE_LAYER, BASE_NAME, TITLE, Descriptor, Document
from engine_images.oci.reference import FORM, Reference
from engine_images.oci.transfer import How, Progress, Pushed, Transfer

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between the attempts for one blob; after the last the push breaks off."""
REPORT_BYTES = 64 << 20
"""A long upload says how far it is each time so much has gone, and a very long one ten times in all."""

T = TypeVar("T")
AccessOf = Callable[[Reference], Access]
Sleep = Callable[[float], None]


def push_image(  # noqa: PLR0917
    layout: OciLayout,
    image: Descriptor,
    target: Reference,
    access: AccessOf,
    progress: Progress = lambda _: None,
    sleep: Sleep = time.sleep,
) -> Pushed:
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
    manifest = json.loads(content)
    with Repository(target, access(target)) as repository:
        push = _Push(layout, repository, _base(manifest), access, progress, sleep)
        transfers = [push.bring(layer, _title(layer)) for layer in map(Descriptor.read, manifest["layers"])]
        transfers.append(push.bring(Descriptor.read(manifest["config"]), "configuration"))
        patiently(partial(repository.publish, target.tag, content), sleep)
        found, _ = patiently(partial(repository.manifest, target.tag), sleep)
    if found.digest != image.digest:
        raise RegistryRefused(
            f"{target} is {found.digest} after the push; expected {image.digest}: somebody else pushed"
        )
    return Pushed(reference=str(target.model_copy(update={"digest": image.digest})), transfers=tuple(transfers))


def patiently(action: Callable[[], T], sleep: Sleep) -> T:
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
    base: Reference | None
    access: AccessOf
    progress: Progress
    sleep: Sleep

    def bring(self, blob: Descriptor, title: str) -> Transfer:
        """Let the repository have `blob`, in the way that costs least."""
        how = patiently(partial(self._bring, blob, title), self.sleep)
        transfer = Transfer(title=title, digest=blob.digest, size=blob.size, how=how, done=blob.size)
        self.progress(transfer)
        return transfer

    def _bring(self, blob: Descriptor, title: str) -> How:
        if self.repository.has(blob.digest):
            return How.THERE
        if title == BASE_LAYER and self._mount(blob):
            return How.MOUNTED
        if self.layout.has(blob):
            self.repository.send(Body(blob, partial(self.layout.pieces, blob), self._sending(blob, title, How.SENT)))
            return How.SENT
        if self.base is None:
            raise BrokenImage(f"{self.layout.root} has no blob {blob.digest}, and names no registry that has it")
        with Repository(self.base, self.access(self.base)) as source:
            self.repository.send(Body(blob, partial(source.blob, blob), self._sending(blob, title, How.COPIED)))
        return How.COPIED

    def _mount(self, blob: Descriptor) -> bool:
        if self.base is None or self.base.registry != self.repository.reference.registry:
            return False
        return self.repository.mount(self.base.repository, blob.digest)

    def _sending(self, blob: Descriptor, title: str, how: How) -> Callable[[int], None]:
        told, step = 0, max(REPORT_BYTES, blob.size // 10)

        def sent(done: int) -> None:
            nonlocal told
            if done - told >= step and done < blob.size:
                told = done
                self.progress(Transfer(title=title, digest=blob.digest, size=blob.size, how=how, done=done))

        return sent


def _base(manifest: Document) -> Reference | None:
    name = manifest.get("annotations", {}).get(BASE_NAME)
    return Reference.parse(name) if name else None


def _title(layer: Descriptor) -> str:
    return layer.annotations.get(TITLE, BASE_LAYER)
