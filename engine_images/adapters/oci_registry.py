"""One repository of a registry, by the distribution protocol, over python-dxf.

All that is sent is named by its digest: to send it again does no harm.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from dxf import DXF, DXFBase
from dxf.exceptions import DXFMountFailed, DXFUnauthorizedError
from requests import HTTPError, Response

from engine_images.adapters.registry_credentials import Credentials
from engine_images.adapters.registry_errors import AWAY, in_our_words, status_of
from engine_images.errors import BrokenImage, NotThere, RegistryRefused
from engine_images.oci.base import INDEXES, MANIFESTS
from engine_images.oci.model import Descriptor
from engine_images.oci.reference import Reference

PIECE = 1 << 20
"""How much of a blob is in memory at once."""
SILENCE_SECONDS = 120.0
"""A registry may say nothing for this long: it computes the digest of a large blob before it answers."""


@dataclass(frozen=True)
class Access:
    """How to speak to a registry."""

    credentials: Credentials | None = None
    insecure: bool = False
    """Plain http also beyond this machine. Passwords are not sent over it."""


@dataclass(frozen=True)
class Body:
    """A blob on its way into a registry: of known length, read again when need be, proven while it is read."""

    descriptor: Descriptor
    pieces: Callable[[], Iterable[bytes]]
    """Begins to read, from the start."""
    sent: Callable[[int], None] = field(default=lambda _: None)
    """Told how many bytes have gone so far."""

    def __len__(self) -> int:
        return self.descriptor.size

    def __iter__(self) -> Iterator[bytes]:
        seen, size = hashlib.sha256(), 0
        for piece in self.pieces():
            seen.update(piece)
            size += len(piece)
            # The last piece of something else must not arrive: the registry would keep it.
            if size >= len(self) and (size > len(self) or f"sha256:{seen.hexdigest()}" != self.descriptor.digest):
                raise BrokenImage(f"{self.descriptor.digest} is not what its name says: it was changed")
            yield piece
            self.sent(size)
        if size < len(self):
            raise BrokenImage(f"{self.descriptor.digest} has {size:,} bytes; expected {len(self):,}")


class Repository:
    """A repository, spoken to over one connection while the context lasts."""

    def __init__(self, reference: Reference, access: Access) -> None:
        """Opens nothing yet."""
        self.reference = reference
        self._access = access
        self._client = _Client(
            reference.address,
            reference.repository,
            auth=self._authenticate,
            insecure=access.insecure or reference.on_loopback,
            timeout=SILENCE_SECONDS,
        )
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._client)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def has(self, digest: str) -> bool:
        """Whether a blob is there."""
        try:
            with self._errors(f"blob {digest}"):
                self._client.blob_size(digest)
        except NotThere:
            return False
        return True

    def send(self, body: Body) -> None:
        """Upload a blob. The registry keeps all of it or nothing.

        Raises:
            BrokenImage: what was read is not what the descriptor says; nothing is kept.
        """
        with self._errors(f"blob {body.descriptor.digest}"):
            self._client.push_blob(data=body, digest=body.descriptor.digest, check_exists=False)

    def mount(self, source: str, digest: str) -> bool:
        """Let the registry take a blob from its own repository `source`; False when it will not."""
        with self._errors(f"blob {digest} of {source}"):
            try:
                self._client.mount_blob(source, digest)
            except (DXFMountFailed, DXFUnauthorizedError):
                return False
            except HTTPError as error:
                if status_of(error) in AWAY:
                    raise
                return False
            return True

    def blob(self, descriptor: Descriptor) -> Iterator[bytes]:
        """A blob, piece by piece, and not one piece past the size that its descriptor promises.

        Raises:
            BrokenImage: it is longer; or, at its end, not what its name says.
        """
        seen = 0
        with self._errors(f"blob {descriptor.digest}"):
            for piece in self._client.blob_pieces(descriptor.digest):
                seen += len(piece)
                if seen > descriptor.size:
                    raise BrokenImage(f"{descriptor.digest} has more than the {descriptor.size:,} bytes it should have")
                yield piece

    def manifest(self, name: str) -> tuple[Descriptor, bytes]:
        """A manifest or index by tag or digest, and its bytes, proven where the name is a digest."""
        with self._errors(f"image {name}"):
            _, response = self._client.get_manifest_and_response(name)
        content = response.content
        found = Descriptor.of(content, response.headers.get("Content-Type", "").split(";")[0])
        if found.media_type not in (*MANIFESTS, *INDEXES):
            raise RegistryRefused(f"{self.reference} is {found.media_type or 'of no type'}; expected an image")
        if name.startswith("sha256:") and found.digest != name:
            raise RegistryRefused(f"{self.reference.registry} answers {name} with {found.digest}")
        return found, content

    def publish(self, name: str, manifest: bytes) -> None:
        """Put a manifest under a tag or its digest; the registry checks that all it names is there."""
        with self._errors(f"image {name}"):
            self._client.set_manifest(name, manifest.decode())

    def knows_referrers(self) -> bool:
        """Whether the registry finds by itself what refers to an image, as version 1.1 of the protocol asks."""
        with self._errors("referrers"):
            return self._client.knows_referrers()

    def _authenticate(self, client: DXFBase, response: Response) -> None:
        known = self._access.credentials
        known, wants_password = self._access.credentials, _wants_password(response)
        if known is None and not wants_password:
            client.authenticate(response=response)
        elif known is not None and wants_password and self.reference.on_loopback and isinstance(client, _Client):
            client.send_password(known)
        elif known is not None:
            client.authenticate(known.username, known.password.get_secret_value(), response=response)

    def _errors(self, what: str) -> AbstractContextManager[None]:
        known = self._access.credentials
        return in_our_words(self.reference, known.username if known else None, what)


class _Client(DXF):
    """What python-dxf leaves out."""

    def send_password(self, credentials: Credentials) -> None:
        """Over plain http too, which python-dxf never does: on the loopback nobody listens in."""
        pair = f"{credentials.username}:{credentials.password.get_secret_value()}"
        self._headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def blob_pieces(self, digest: str) -> Iterator[bytes]:
        """`pull_blob` with one type of answer."""
        pieces = self.pull_blob(digest, chunk_size=PIECE)
        if isinstance(pieces, tuple):
            raise TypeError("asked for the pieces only")
        yield from pieces

    def knows_referrers(self) -> bool:
        """An empty list for an image that is not there is the protocol's way to say yes."""
        try:
            self._request("get", f"referrers/sha256:{'0' * 64}")  # type: ignore[no-untyped-call]
        except HTTPError as error:
            if status_of(error) not in {400, 404, 405, 501}:
                raise
            return False
        return True


def _wants_password(response: Response) -> bool:
    """As opposed to a token, which a registry gives to anyone for what is public."""
    return not response.headers.get("WWW-Authenticate", "").lower().startswith("bearer")
