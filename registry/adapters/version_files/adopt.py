"""A version that somebody else logged gets the digests of its files, as tags; its files stay where they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Event, Lock

from registry.adapters.mlflow_store import Store
from registry.conventions import FILE_PREFIX, FOLDERS
from registry.errors import DigestMismatch, UnfitModel
from registry.layout import find_layout, places_in
from registry.model import AdoptionProgress, ModelVersion, StoredVersion, Survey
from registry.model_files import card_of, is_described_by
from registry.version_tags import digest_tags

TOGETHER = 4
"""Files that are read at once."""
MOST_DESCRIBED_BYTES = 64 << 20
"""Of a JSON file at the top, which is read into memory; a tokenizer of 250,000 tokens has 35 MB."""


def survey(store: Store, found: StoredVersion, folder: str | None = None) -> Survey:
    """Look where the Hugging Face folder lies in the version.

    Raises:
        UnfitModel: nowhere, or in several places and none is named.
    """
    address = store.place(found.name, found.version)
    listed = store.files.listed(address)
    try:
        layout = find_layout(listed, folder=folder)
    except UnfitModel as error:
        raise UnfitModel(f"models:/{found.name}/{found.version}: {error.message}", hint=error.hint) from None
    sizes = {path: listed[place] for path, place in layout.files.items()}
    return Survey(name=found.name, version=found.version, address=address, layout=layout, sizes=sizes)


def adopt(store: Store, found: StoredVersion, seen: Survey, progress: AdoptionProgress) -> None:
    """Read every file once, refuse what is not served, and write the digests as tags.

    Raises:
        UnfitModel: it needs code, or a file is missing; no tag was written.
        DigestMismatch: a file was cut off, or changed while it was read.
    """
    progress(seen, 0)
    reader = _Reader(store, seen, progress)
    described = {path: reader.content(path) for path in seen.sizes if is_described_by(path)}
    card_of(seen.uri, list(seen.sizes), described)
    rest = [path for path in sorted(seen.sizes, key=seen.sizes.__getitem__, reverse=True) if path not in described]
    # Its threads hold up no Ctrl-C.
    with ThreadPool(TOGETHER) as pool:
        try:
            files = dict(zip(rest, pool.imap(reader.digest, rest), strict=True))
        except BaseException:
            reader.stop()
            raise
    files |= {path: hashlib.sha256(content).hexdigest() for path, content in described.items()}
    _write(store, found, {FOLDERS: json.dumps(seen.layout.folders)} | digest_tags(files, seen.size_bytes))


def fetch(store: Store, version: ModelVersion, target: Path) -> dict[str, str]:
    """Write the version's files below `target`, which is not there yet; returns the digests of what was written.

    Files that were put there since, and have no digest, are not fetched.
    """
    address = store.place(version.name, version.version)
    places = places_in(version.folders, store.files.listed(address))

    def fetched(path: str) -> str:
        digest, file = hashlib.sha256(), target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as kept:
            for part in store.files.parts(address, places[path], target.parent):
                digest.update(part)
                kept.write(part)
        return digest.hexdigest()

    there = [path for path in version.files if path in places]
    with ThreadPool(TOGETHER) as pool:
        return dict(zip(there, pool.imap(fetched, there), strict=True))


class _Reader:
    """Reads files of a version, and counts."""

    def __init__(self, store: Store, seen: Survey, progress: AdoptionProgress) -> None:
        self._store, self._seen, self._progress = store, seen, progress
        self._done, self._lock, self._stopped = 0, Lock(), Event()

    def stop(self) -> None:
        """After one file failed, or Ctrl-C, nobody waits for the others."""
        self._stopped.set()

    def digest(self, path: str) -> str:
        digest = hashlib.sha256()
        for part in self._parts(path):
            digest.update(part)
        return digest.hexdigest()

    def content(self, path: str) -> bytes:
        if self._seen.sizes[path] > MOST_DESCRIBED_BYTES:
            raise UnfitModel(
                f"{self._seen.uri}: {path} is larger than a description is",
                hint="log the version again with a plain Hugging Face folder",
            )
        return b"".join(self._parts(path))

    def _parts(self, path: str) -> Iterator[bytes]:
        had = 0
        for part in self._store.files.parts(self._seen.address, self._seen.layout.files[path]):
            if self._stopped.is_set():
                return
            had += len(part)
            with self._lock:
                self._done += len(part)
                self._progress(self._seen, self._done)
            yield part
        # Some stores do not say how large a file is.
        if self._seen.sizes[path] not in (0, had):
            raise DigestMismatch(
                f"{self._seen.uri}: {path} has {had} bytes, and {self._seen.sizes[path]} when it was listed",
                hint="try again once nobody writes there",
            )


def _write(store: Store, found: StoredVersion, tags: Mapping[str, str]) -> None:
    """Tags of an attempt that was broken off, of another folder, would count as files of this one."""
    changed = {key: value for key, value in tags.items() if found.tags.get(key) != value}
    gone = dict.fromkeys(_left_behind(found.tags, tags))
    store.models.tag_version(found.name, found.version, {**gone, **changed})


def _left_behind(there: Iterable[str], wanted: Mapping[str, str]) -> Iterator[str]:
    return (key for key in there if key.startswith(FILE_PREFIX) and key not in wanted)
