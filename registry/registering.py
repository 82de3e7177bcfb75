"""Files become a version's: a folder that is uploaded, or what somebody else has logged, whose digests are kept."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from registry import conventions as tag
from registry.conventions import MODEL_FOLDER, SUMS
from registry.errors import DigestMismatch, StoreUnreachable, UnfitModel
from registry.files import CONFIG, architecture_of, digest_file, find_layout, is_described_by, sums_of, whole_digest
from registry.model import PendingFiles, StoredVersion, Survey
from registry.ports import Store
from tidegate.core.process import note
from tidegate.core.text import in_bytes

TOGETHER = 4
"""Files that are read at once."""
TOKENIZER_FILES = re.compile(
    r"(tokenizer|special_tokens|added_tokens|vocab|merges|chat_template|config|spiece)[^/]*|[^/]*\.model"
)
"""What `AutoTokenizer` reads without the model."""
OLDEST_TRANSFORMERS = "4.56.0"
"""Assumed for a config.json that does not say which version wrote it."""
TEXT = json.dumps([{"type": "string", "required": True}])
"""The schema of what goes in and of what comes out."""


def upload(store: Store, name: str, folder: Path, files: Mapping[str, str], architecture: str) -> PendingFiles:
    """Copy the files of `folder`, whose digests are `files`, into MLflow's store, once.

    Next to them lies what `mlflow.transformers.load_model` reads.

    Raises:
        StoreUnreachable: the store did not do its part; what is cut off never becomes a version.
    """
    pending = store.begin_files(tag.experiment_name(name), name, architecture)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            sums, described = Path(made, SUMS), Path(made, "MLmodel")
            sums.write_text(sums_of(files), encoding="utf-8")
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            described.write_text(yaml.safe_dump(_mlmodel(config, architecture, pending), default_flow_style=False))
            for path, file in {**{path: folder / path for path in files}, SUMS: sums}.items():
                store.put(pending.address, f"{MODEL_FOLDER}/{path}", file)
            for path in filter(TOKENIZER_FILES.fullmatch, files):
                store.put(pending.address, f"components/tokenizer/{path}", folder / path)
            store.put(pending.address, "MLmodel", described)
    except BaseException:
        with suppress(StoreUnreachable):
            store.abandon_files(pending)
        raise
    return pending


def _mlmodel(config: Mapping[str, Any], architecture: str, pending: PendingFiles) -> dict[str, Any]:
    dtype = config.get("dtype") or config.get("torch_dtype")
    flavor: dict[str, Any] = {
        "transformers_version": config.get("transformers_version") or OLDEST_TRANSFORMERS,
        "code": None,
        "task": "text-generation",
        "instance_type": "TextGenerationPipeline",
        "pipeline_model_type": architecture,
        "source_model_name": MODEL_FOLDER,
        "model_binary": MODEL_FOLDER,
        "components": ["tokenizer"],
        # Any other class name could make MLflow load it with trust_remote_code; this one reads the files.
        "tokenizer_type": "AutoTokenizer",
        **({"torch_dtype": f"torch.{dtype}"} if dtype else {}),
    }
    return {
        "artifact_path": pending.address,
        "flavors": {"transformers": flavor, "python_function": {"loader_module": "mlflow.transformers"}},
        "mlflow_version": version("mlflow-skinny"),
        "model_id": pending.id,
        "model_uuid": pending.id,
        "signature": {"inputs": TEXT, "outputs": TEXT, "params": None},
        "utc_time_created": str(datetime.now(UTC).replace(tzinfo=None)),
    }


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
    described, here = dict[str, bytes](), _local_folder(seen.address)
    size = in_bytes(seen.size_bytes) if seen.size_bytes else "of a size that the store does not say"
    note(f"{seen.uri}: its {len(seen.sizes)} files are read once for their digests, {size}")
    for path in seen.left_out:
        note(f"{seen.uri}: {path} is not served: code, or what may hold pickled objects")

    def read(path: str) -> str:
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
            return digest_file(file)

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
    """Keep them in the version's run, or in one of their own; returns their address."""
    run = store.run(found.run) if found.run else None
    if run is None or run.is_deleted:
        now, title = int(time.time() * 1000), f"{found.name} {found.version}: digests"
        params = {"model": found.name, "version": found.version}
        run = store.create_run(tag.experiment_name(found.name), name=title, started=now, tags={}, params=params)
        store.end_run(run.id, "FINISHED", ended=now)
    place = f"tidegate/{found.name}/{found.version}"
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        Path(made, SUMS).write_text(sums, encoding="utf-8")
        store.put(run.artifacts, f"{place}/{SUMS}", Path(made, SUMS))
    return run.file(place)


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
