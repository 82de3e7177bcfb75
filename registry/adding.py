"""A folder, a run's artifacts, a repository of the hub, or a version that others logged becomes one of tidegate's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from registry.conventions import SOURCE, is_version_number, refuse_alias
from registry.hub import PLACE, fetch_from_hub
from registry.model import AdoptionProgress, ModelVersion
from registry.versions import MlflowRegistry
from tidegate.core.adapters.extras import require
from tidegate.core.errors import UsageError

_RUN = re.compile(r"runs:/+(?P<run>[0-9A-Za-z][\w-]*)(?:/(?P<path>.*))?", re.ASCII)
_ADDRESS = re.compile(r"[a-z0-9-]{2,}:/")


def add_version(
    registry: MlflowRegistry,
    name: str,
    source: str,
    *,
    alias: str | None = None,
    description: str | None = None,
    progress: AdoptionProgress,
    tell: Callable[[str], None],
) -> ModelVersion:
    """Make a model's next version of `source`; a version's number or alias names one that is there, and is adopted.

    Args:
        registry: gets the version.
        name: of the registered model.
        source: a folder, runs:/RUN/PATH, hf://ORGANISATION/NAME@REVISION, or a version's number or alias.
        alias: for the version.
        description: of a new version.
        progress: told what will be read, and how far that is.
        tell: hears what is fetched.

    Raises:
        UnknownSource: there is no such run or repository.
        UnknownVersion, UnknownAlias: there is no such version.
        UnfitModel: what lies there is not served.
        HubAway, StoreUnreachable: one of them did not answer.
        UsageError: an argument is wrong, or of no use with that source.
    """
    if alias is not None:
        refuse_alias(alias)
    if re.fullmatch(r"[\w-]+", source) and (is_version_number(source) or not Path(source).exists()):
        if description is not None:
            raise UsageError("--description is for a new version", hint=f"write ./{source} for a folder of that name")
        version = registry.adopt(name, source, progress=progress)
    elif hub := PLACE.fullmatch(source):
        require("huggingface_hub")
        uri, folder, files = fetch_from_hub(hub["repository"], hub["revision"] or "main", tell)
        version = registry.register(name, folder, description=description, files=files, tags={SOURCE: uri})
    elif (run := _RUN.fullmatch(source)) and ".." not in source.split("/"):
        path = (run["path"] or "").strip("/")
        version = registry.register_run(name, run["run"], path, description=description, progress=progress)
    elif _ADDRESS.match(source):
        raise UsageError(
            f"`{source}` is no source of a model version",
            hint="write a folder, runs:/RUN/PATH or hf://ORGANISATION/NAME@REVISION",
        )
    else:
        version = registry.register(name, Path(source), description=description)
    if alias is None:
        return version
    registry.set_alias(name, alias, version.version)
    return registry.resolve(name, version.version)
