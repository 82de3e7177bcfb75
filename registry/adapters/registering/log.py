"""Logs a Hugging Face directory as a new model version."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from registry.adapters.registering.description import lay_out
from registry.conventions import experiment_name
from registry.errors import StoreUnreachable
from registry.model_files import ModelCard
from registry.ports import VersionLog


def log_version(
    store: VersionLog,
    name: str,
    folder: Path,
    paths: Iterable[str],
    card: ModelCard,
    *,
    tags: Mapping[str, str],
    description: str | None,
) -> str:
    """Copy the files into MLflow's store, once, and make a version of them; returns its number.

    Raises:
        StoreUnreachable: the store did not do its part; what is cut off never becomes a version.
    """
    # A registered model may have a dot in its name, a logged one may not.
    pending = store.begin(experiment_name(name), name.replace(".", "-"), card.architecture)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as staging:
        lay_out(Path(staging), folder, paths, card, pending)
        try:
            store.upload(pending, Path(staging))
        except BaseException:
            with suppress(StoreUnreachable):
                store.abandon(pending)
            raise
        return store.finish(pending, name, tags, description)
