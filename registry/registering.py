"""Files become a version's: a folder that is uploaded, or what somebody else has logged, whose digests are kept."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urlsplit

from registry import conventions as tag
from registry.conventions import MODEL_FOLDER, SUMS
from registry.errors import DigestMismatch, StoreUnreachable, UnfitModel
from registry.files import architecture_of, digest_file, find_layout, is_described_by, sums_of, whole_digest
from registry.model import PendingFiles, StoredVersion, Survey
from registry.ports import Store
from tidegate.core.process import note
from tidegate.core.text import in_bytes

TOGETHER = 4
"""Files that are read at once."""
PROGRESS_SECONDS = 10.0
"""Between two lines that say how far the reading of a version is."""


def upload(store: Store, name: str, folder: Path, files: Mapping[str, str], architecture: str) -> PendingFiles:
    """Copy the files of `folder`, whose digests are `files`, into MLflow's store, once.

    Raises:
        StoreUnreachable: the store did not do its part; what is cut off never becomes a version.
    """
    pending = store.begin_files(tag.experiment_name(name), name, architecture)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            sums = Path(made, SUMS)
            sums.write_text(sums_of(files), encoding="utf-8")
            for path, file in {**{path: folder / path for path in files}, SUMS: sums}.items():
                store.put(pending.address, f"{MODEL_FOLDER}/{path}", file)
    except BaseException:
        with suppress(StoreUnreachable):
            store.abandon_files(pending)
        raise
    return pending


def survey(store: Store, found: StoredVersion) -> Survey:
    """Look where the Hugging Face folder lies in a version that somebody else logged.

    Raises:
        UnfitModel: nowhere, or in several places.
    """
    address = store.address(found.name, found.version)
    return find_layout(found.uri, address, store.listed(address))


def adopt(store: Store, found: StoredVersion) -> None:
    """Read every file once, refuse what is not served, and keep the digests; the tag with theirs goes last.

    Raises:
        UnfitModel: it needs code, or a file is missing; nothing was written.
        DigestMismatch: a file was cut off, or changed while it was read.
    """
    seen = survey(store, found)
    described, here, lock = dict[str, bytes](), _local_folder(seen.address), Lock()
    size = in_bytes(seen.size_bytes) if seen.size_bytes else "of a size that the store does not say"
    note(f"{seen.uri}: its {len(seen.sizes)} files are read once for their digests, {size}")
    for path in seen.left_out:
        note(f"{seen.uri}: {path} is not served: code, or what may hold pickled objects")
    done, told = 0, time.monotonic()

    def read(path: str) -> str:
        nonlocal done, told
        place, listed = seen.places[path], seen.sizes[path]
        with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            file = here / place if here else Path(made, "file")
            if not here:
                store.fetch(seen.address, place, file)
            # Some stores do not say how large a file is.
            if listed not in (0, file.stat().st_size):
                message = f"{seen.uri}: {path} has {file.stat().st_size} bytes, and {listed} when it was listed"
                raise DigestMismatch(message, hint="try again once nobody writes there")
            if is_described_by(path):
                described[path] = content_of(file, f"{seen.uri}: {path}")
            digest = digest_file(file)
            with lock:
                done += file.stat().st_size
                if time.monotonic() >= told + PROGRESS_SECONDS:
                    told = time.monotonic()
                    note(f"{seen.uri}: {in_bytes(done)} of {size}")
        return digest

    files = together(read, sorted(seen.sizes, key=seen.sizes.__getitem__, reverse=True))
    architecture_of(seen.uri, seen.sizes, described.__getitem__)
    kept = {"sums": _keep_sums(store, found, sums_of(files)), "folders": list(seen.folders)}
    tags = {tag.ADOPTED: json.dumps(kept), tag.SIZE: str(seen.size_bytes), tag.DIGEST: whole_digest(files)}
    store.tag_version(found.name, found.version, tags)


def _local_folder(address: str) -> Path | None:
    """The folder that an artifact address means; None when it is not on this machine."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(unquote(parts.path)) if parts.netloc in ("", "localhost") else None
    return Path(address) if address.startswith("/") else None


def _keep_sums(store: Store, found: StoredVersion, sums: str) -> str:
    """Keep them in a run of their own; returns their address."""
    now, title = int(time.time() * 1000), f"{found.name} {found.version}: digests"
    params = {"model": found.name, "version": found.version}
    run = store.create_run(tag.experiment_name(found.name), name=title, started=now, tags={}, params=params)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        Path(made, SUMS).write_text(sums, encoding="utf-8")
        store.put(run.artifacts, SUMS, Path(made, SUMS))
    store.end_run(run.id, "FINISHED", ended=now)
    return run.artifacts


def content_of(file: Path, place: str) -> bytes:
    """What a small file says; `place` is where it is, for messages."""
    if (size := file.stat().st_size) > tag.MOST_ARTIFACT_BYTES:
        raise UnfitModel(
            f"{place} has {size:,} bytes, and is no description",
            hint="log the version again with a plain Hugging Face folder",
        )
    return file.read_bytes()


def together(read: Callable[[str], str], paths: Sequence[str]) -> dict[str, str]:
    """What `read` says of each; its threads hold up no Ctrl-C."""
    with ThreadPool(TOGETHER) as pool:
        return dict(zip(paths, pool.imap(read, paths), strict=True))
