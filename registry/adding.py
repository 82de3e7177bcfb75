"""A folder, a run's artifacts, a repository of the hub, or a version that others logged becomes one of tidegate's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from registry.conventions import SOURCE, alias_problem, is_version_number
from registry.model import AdoptionProgress, ModelVersion
from registry.sources import HubSource, RunSource, source_of
from registry.versions import MlflowRegistry
from tidegate.core.errors import UsageError


def add_version(
    registry: MlflowRegistry,
    name: str,
    source: str,
    *,
    alias: str | None = None,
    description: str | None = None,
    folder: str | None = None,
    progress: AdoptionProgress | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> ModelVersion:
    """Make a model's next version of `source`; a version's number or alias names one that is there, and is adopted.

    Args:
        registry: gets the version.
        name: of the registered model.
        source: a folder, runs:/RUN/PATH, hf://ORGANISATION/NAME@REVISION, or a version's number or alias.
        alias: for the version.
        description: of a new version.
        folder: of a version that is there: where its Hugging Face folder lies, if there are several.
        progress: told what will be read, and how far that is.
        tell: hears what is fetched.

    Raises:
        UnknownSource: there is no such run or repository.
        UnknownVersion, UnknownAlias: there is no such version.
        UnfitModel: what lies there is not served.
        HubAway, StoreUnreachable: one of them did not answer.
        UsageError: an argument is wrong, or of no use with that source.
    """
    if problem := alias_problem(alias) if alias is not None else None:
        raise UsageError(f"alias `{alias}`: {problem}", hint="such as challenger, champion, production")
    if is_version_number(source) or not (Path(source).exists() or alias_problem(source)):
        if description is not None:
            raise UsageError("--description is for a new version", hint=f"write ./{source} for a folder of that name")
        version = registry.adopt(name, source, folder=folder, progress=progress)
        if alias is None:
            return version
        registry.set_alias(name, alias, version.version)
        return registry.resolve(name, version.version)
    if folder is not None:
        raise UsageError("--folder is for a version that is there", hint="name the folder itself")
    found = source_of(source)
    if isinstance(found, RunSource):
        return registry.register_run(name, found, description=description, alias=alias, progress=progress)
    if isinstance(found, HubSource):
        return _from_hub(registry, name, found, alias=alias, description=description, tell=tell)
    return registry.register(name, found, description=description, alias=alias)


def _from_hub(
    registry: MlflowRegistry,
    name: str,
    source: HubSource,
    *,
    alias: str | None,
    description: str | None,
    tell: Callable[[str], None],
) -> ModelVersion:
    from tidegate.core.adapters.extras import require

    require("huggingface_hub")
    commit = source.resolved()
    tell(f"{commit.uri}: fetching its files")
    folder, files = commit.fetched()
    tags = {SOURCE: commit.uri}
    return registry.register(name, folder, description=description, alias=alias, files=files, tags=tags)
