"""Files of model versions in an object store, in parts, whichever provider's it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from registry.errors import ConnectionBroken, StoreUnreachable
from registry.model import StoredObject
from registry.ports import ObjectContainer

PART_BYTES = 16 << 20
"""Of one request: what is lost with a connection, and what each file that is read takes of memory."""
ATTEMPTS = 5
PAUSE_SECONDS = 1.0
"""Before the third attempt; the second comes at once, and each further pause is twice as long."""

Place = tuple[ObjectContainer, str]
"""A container, and the key of a folder in it, without a slash at its end; empty for its top."""


class ObjectFiles:
    """An `ArtifactFiles` of addresses that `place_of` takes."""

    def __init__(self, place_of: Callable[[str], Place], *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._place_of, self._sleep = place_of, sleep

    def listed(self, address: str) -> Mapping[str, int]:
        container, root = self._place_of(address)
        start = f"{root}/" if root else ""
        return {key.removeprefix(start): size for key, size in container.objects(start) if not key.endswith("/")}

    def parts(self, address: str, path: str) -> Iterator[bytes]:
        container, root = self._place_of(address)
        found = container.state(_key(root, path))
        for begin in range(0, found.size_bytes, PART_BYTES):
            yield self._part(container, found, begin, min(PART_BYTES, found.size_bytes - begin))

    def put(self, address: str, path: str, file: Path) -> None:
        container, root = self._place_of(address)
        container.put(_key(root, path), file)

    def _part(self, container: ObjectContainer, found: StoredObject, begin: int, length: int) -> bytes:
        for attempt in range(ATTEMPTS):
            try:
                part = container.part(found, begin, length)
            except ConnectionBroken:
                if attempt == ATTEMPTS - 1:
                    raise
                self._sleep(PAUSE_SECONDS * 2 ** (attempt - 1) if attempt else 0.0)
            else:
                break
        if len(part) != length:
            raise StoreUnreachable(
                f"{found.key}: {length} bytes were asked for, and {len(part)} came",
                hint="a store, or a proxy before it, that heeds no Range header",
            )
        return part


def _key(root: str, path: str) -> str:
    return f"{root}/{path}" if root else path
