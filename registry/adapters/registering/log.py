"""Logs a Hugging Face directory as a new model version."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from registry.adapters.registering.description import lay_out
from registry.conventions import experiment_name
from registry.errors import StoreUnreachable
from registry.model import PendingVersion
from registry.model_files import ModelCard
from registry.ports import VersionLog
from tidegate.core.files import file_lock, is_locked

PENDING = "pending.json"


def log_version(
    store: VersionLog,
    name: str,
    folder: Path,
    paths: Iterable[str],
    card: ModelCard,
    *,
    address: str,
    tags: Mapping[str, str],
    description: str | None,
) -> str:
    """Copy the files into MLflow's store at `address`, once, and make a version of them; returns its number.

    Raises:
        StoreUnreachable: the store did not do its part; what is cut off never becomes a version.
    """
    prefix = f"tidegate-{sha256(address.encode()).hexdigest()[:16]}-"
    _abandon_killed(store, prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as made, file_lock(Path(made, PENDING)):
        # A registered model may have a dot in its name, a logged one may not.
        pending = store.begin(experiment_name(name), name.replace(".", "-"), card.architecture)
        Path(made, PENDING).write_text(pending.model_dump_json(), encoding="utf-8")
        staging = Path(made, "files")
        lay_out(staging, folder, paths, card, pending)
        try:
            store.upload(pending, staging)
        except BaseException:
            with suppress(StoreUnreachable):
                store.abandon(pending)
            raise
        return store.finish(pending, name, tags, description)


def _abandon_killed(store: VersionLog, prefix: str) -> None:
    """Delete what processes of this user and machine had begun in that store when they were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError, ValidationError, StoreUnreachable):
            # A folder of another user could name any logged model.
            if left.lstat().st_uid == os.getuid():
                pending = PendingVersion.model_validate_json((left / PENDING).read_bytes())
                # It is written under the lock: read before, since a process that lives may write it in between.
                if not is_locked(left / PENDING):
                    store.abandon(pending)
                    shutil.rmtree(left)
