"""A folder, a run's artifacts or a repository of the hub becomes the next version of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from registry.adapters.mlflow_models import MlflowRegistry
from registry.conventions import REVISION, SOURCE
from registry.model import ModelVersion
from registry.model_files import digest_files
from registry.sources import HubSource, RunSource, source_of
from tidegate.app.plan import NotedAdoption
from tidegate.app.process import note
from tidegate.app.wiring.stores import open_hub, open_registry


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
    if isinstance(source, HubSource):
        return _from_hub(registry, source, asked)
    if isinstance(source, RunSource):
        return registry.register_run(
            asked.name, source, description=asked.description, alias=asked.alias, progress=NotedAdoption()
        )
    return registry.register(asked.name, source, description=asked.description, alias=asked.alias)


def _from_hub(registry: MlflowRegistry, source: HubSource, asked: Registration) -> ModelVersion:
    from registry.adapters.hugging_face import require_as_said

    hub = open_hub()
    revision = hub.resolve(source)
    note(f"{revision.uri}: fetching its files")
    folder = hub.fetch(revision)
    files = digest_files(folder)
    require_as_said(revision, files)
    tags = {SOURCE: revision.uri, REVISION: source.revision}
    return registry.register(
        asked.name, folder, description=asked.description, alias=asked.alias, files=files, tags=tags
    )
