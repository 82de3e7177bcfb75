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

from registry.conventions import (
    ADOPTED,
    DIGEST,
    MODEL_FOLDER,
    MOST_ARTIFACT_BYTES,
    SIZE,
    SUMS,
    experiment_name,
)
from registry.errors import DigestMismatch, StoreUnreachable, UnfitModel
from registry.files import (
    architecture_of,
    digest_file,
    find_layout,
    is_described_by,
    sums_of,
    whole_digest,
)
from registry.model import AdoptionProgress, PendingFiles, StoredVersion, Survey
from registry.ports import Store

TOGETHER = 4
"""Files that are read at once."""


def upload(store: Store, name: str, folder: Path, files: Mapping[str, str], architecture: str) -> PendingFiles:
    """Copy the files of `folder`, whose digests are `files`, into MLflow's store, once.

    Raises:
        StoreUnreachable: the store did not do its part; what is cut off never becomes a version.
    """
    pending = store.begin_files(experiment_name(name), name, architecture)
    try:
        for path in files:
            store.put(pending.address, f"{MODEL_FOLDER}/{path}", folder / path)
        _put_text(store, pending.address, f"{MODEL_FOLDER}/{SUMS}", sums_of(files))
    except BaseException:
        with suppress(StoreUnreachable):
            store.abandon_files(pending)
        raise
    return pending


def _put_text(store: Store, address: str, path: str, text: str) -> None:
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        file = Path(made, "text")
        file.write_text(text, encoding="utf-8")
        store.put(address, path, file)


def survey(store: Store, found: StoredVersion) -> Survey:
    """Look where the Hugging Face folder lies in a version that somebody else logged.

    Raises:
        UnfitModel: nowhere, or in several places.
    """
    address = store.address(found.name, found.version)
    listed = store.listed(address)
    try:
        layout = find_layout(listed)
    except UnfitModel as error:
        raise UnfitModel(f"{found.uri}: {error.message}", hint=error.hint) from None
    sizes = {path: listed[place] for path, place in layout.files.items()}
    return Survey(uri=found.uri, address=address, layout=layout, sizes=sizes)


def adopt(store: Store, found: StoredVersion, seen: Survey, progress: AdoptionProgress) -> None:
    """Read every file once, refuse what is not served, and keep the digests; the tag with theirs goes last.

    Raises:
        UnfitModel: it needs code, or a file is missing; nothing was written.
        DigestMismatch: a file was cut off, or changed while it was read.
    """
    described, here, done, lock = dict[str, bytes](), local_folder(seen.address), 0, Lock()
    progress(seen, done)

    def read(path: str) -> str:
        nonlocal done
        place, size = seen.layout.files[path], seen.sizes[path]
        with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            file = here / place if here else Path(made, "file")
            if not here:
                store.fetch(seen.address, place, file)
            # Some stores do not say how large a file is.
            if size not in (0, file.stat().st_size):
                told = f"{seen.uri}: {path} has {file.stat().st_size} bytes, and {size} when it was listed"
                raise DigestMismatch(told, hint="try again once nobody writes there")
            if is_described_by(path):
                described[path] = content_of(file, f"{seen.uri}: {path}")
            digest = digest_file(file)
            with lock:
                done += file.stat().st_size
                progress(seen, done)
        return digest

    files = together(read, sorted(seen.sizes, key=seen.sizes.__getitem__, reverse=True))
    architecture_of(seen.uri, seen.sizes, described.__getitem__)
    kept = {"sums": _keep_sums(store, found, sums_of(files)), "folders": list(seen.layout.folders)}
    told = {ADOPTED: json.dumps(kept), SIZE: str(seen.size_bytes), DIGEST: whole_digest(files)}
    store.tag_version(found.name, found.version, told)


def local_folder(address: str) -> Path | None:
    """The folder that an artifact address means; None when it is not on this machine."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(unquote(parts.path)) if parts.netloc in ("", "localhost") else None
    return Path(address) if address.startswith("/") else None


def _keep_sums(store: Store, found: StoredVersion, sums: str) -> str:
    """Keep them in the version's run, or in one of their own; returns their address."""
    run = store.run(found.run) if found.run else None
    if run is None or run.is_deleted:
        now = int(time.time() * 1000)
        title, params = f"{found.name} {found.version}: digests", {"model": found.name, "version": found.version}
        run = store.create_run(experiment_name(found.name), name=title, started=now, tags={}, params=params)
        store.end_run(run.id, "FINISHED", ended=now)
    place = f"tidegate/{found.name}/{found.version}"
    _put_text(store, run.artifacts, f"{place}/{SUMS}", sums)
    return f"{run.artifacts.rstrip('/')}/{place}"


def content_of(file: Path, place: str) -> bytes:
    """What a small file says; `place` is where it is, for messages."""
    if (size := file.stat().st_size) > MOST_ARTIFACT_BYTES:
        raise UnfitModel(
            f"{place} has {size:,} bytes, and is no description",
            hint="log the version again with a plain Hugging Face folder",
        )
    return file.read_bytes()


def together(read: Callable[[str], str], paths: Sequence[str]) -> dict[str, str]:
    """What `read` says of each; its threads hold up no Ctrl-C."""
    with ThreadPool(TOGETHER) as pool:
        return dict(zip(paths, pool.imap(read, paths), strict=True))
