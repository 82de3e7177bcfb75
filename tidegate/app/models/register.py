"""A folder, a run's artifacts or a repository of the hub becomes the next version of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.adapters.stores import NotedAdoption, open_hub, open_registry
from registry.conventions import REVISION, SOURCE
from registry.model import ModelVersion
from registry.model_files import digest_files
from registry.sources import HubSource, RunSource, source_of
from tidegate.core.process import note


@dataclass(frozen=True)
class Registration:
    """What a person asks for."""

    name: str
    source: str
    state: Path
    tracking_uri: str | None = None
    alias: str | None = None
    description: str | None = None


def register(asked: Registration) -> ModelVersion:
    """The version that is made.

    Raises:
        UnknownSource: there is no such run or repository.
        UnfitModel: what lies there is not served.
        HubAway, StoreUnreachable: one of them did not answer.
    """
    registry, source = open_registry(asked.state, asked.tracking_uri), source_of(asked.source)
    if isinstance(source, RunSource):
        return registry.register_run(
            asked.name, source, description=asked.description, alias=asked.alias, progress=NotedAdoption()
        )
    if isinstance(source, Path):
        return registry.register(asked.name, source, description=asked.description, alias=asked.alias)
    folder, files, tags = _fetched(source)
    return registry.register(
        asked.name, folder, description=asked.description, alias=asked.alias, files=files, tags=tags
    )


def _fetched(source: HubSource) -> tuple[Path, Mapping[str, str], Mapping[str, str]]:
    """The folder with the files of the hub, their digests, and what is recorded of where they come from."""
    hub = open_hub()
    revision = hub.resolve(source)
    note(f"{revision.uri}: fetching its files")
    folder = hub.fetch(revision)
    files = digest_files(folder)
    revision.require_same(files)
    return folder, files, {SOURCE: revision.uri, REVISION: source.revision}
