"""Files become a version's: a folder that is uploaded, or what somebody else has logged, whose digests are kept."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Lock

import yaml

from registry.conventions import (
    ADOPTED,
    DIGEST,
    MODEL_FOLDER,
    MOST_ARTIFACT_BYTES,
    REGISTERING,
    SIZE,
    SUMS,
    experiment_name,
)
from registry.errors import DigestMismatch, StoreUnreachable, UnfitModel
from registry.files import (
    CONFIG,
    architecture_of,
    digest_file,
    find_layout,
    is_described_by,
    sums_of,
    whole_digest,
)
from registry.flavor import mlmodel, tokenizer_files
from registry.mlflow import now_ms
from registry.mlflow_files import local_folder
from registry.model import AdoptionProgress, PendingFiles, StoredVersion, Survey
from registry.ports import Store
from registry.processes import may_act, this_machine

TOGETHER = 4
"""Files that are read at once."""


def upload(store: Store, name: str, folder: Path, files: Mapping[str, str], architecture: str) -> PendingFiles:
    """Copy the files of `folder`, whose digests are `files`, into MLflow's store, once.

    Raises:
        StoreUnreachable: the store did not do its part; what is cut off never becomes a version.
    """
    experiment = experiment_name(name)
    _abandon_killed(store, experiment)
    tags = {REGISTERING: f"{this_machine()} {os.getpid()}"}
    pending = store.begin_files(experiment, name, architecture, tags)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            sums, described = Path(made, SUMS), Path(made, "MLmodel")
            sums.write_text(sums_of(files), encoding="utf-8")
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            described.write_text(yaml.safe_dump(mlmodel(config, architecture, pending), default_flow_style=False))
            for path, file in {**{path: folder / path for path in files}, SUMS: sums}.items():
                store.put(pending.address, f"{MODEL_FOLDER}/{path}", file)
            for path in tokenizer_files(files):
                store.put(pending.address, f"components/tokenizer/{path}", folder / path)
            store.put(pending.address, "MLmodel", described)
    except BaseException:
        with suppress(StoreUnreachable):
            store.abandon_files(pending)
        raise
    return pending


def _abandon_killed(store: Store, experiment: str) -> None:
    """Delete what processes of this machine had begun there when they were killed."""
    for left in store.pending_files(experiment):
        machine, _, pid = left.tags.get(REGISTERING, "").rpartition(" ")
        if machine == this_machine() and pid.isdecimal() and not may_act(int(pid)):
            with suppress(StoreUnreachable):
                store.abandon_files(left)


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


def _keep_sums(store: Store, found: StoredVersion, sums: str) -> str:
    """Keep them in the version's run, or in one of their own; returns their address."""
    run = store.run(found.run) if found.run else None
    if run is None or run.is_deleted:
        title, params = f"{found.name} {found.version}: digests", {"model": found.name, "version": found.version}
        run = store.create_run(experiment_name(found.name), name=title, started=now_ms(), tags={}, params=params)
        store.end_run(run.id, "FINISHED", ended=now_ms())
    place = f"tidegate/{found.name}/{found.version}"
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        Path(made, SUMS).write_text(sums, encoding="utf-8")
        store.put(run.artifacts, f"{place}/{SUMS}", Path(made, SUMS))
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
