"""What the tags of a model version say of its files, and what is written there when it is registered or adopted."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from registry.conventions import DIGEST, FILE_PREFIX, FOLDERS, SIZE
from registry.errors import UnfitModel
from registry.model import ModelVersion, StoredModel, StoredVersion
from registry.model_files import whole_digest
from tidegate.core.text import json_of


def digest_tags(files: Mapping[str, str], size_bytes: int) -> dict[str, str]:
    """The tags of a version with these files; the digest over all goes last, since it says that the rest is there."""
    return {FILE_PREFIX + path: files[path] for path in files} | {SIZE: str(size_bytes), DIGEST: whole_digest(files)}


def version_of(found: StoredVersion, model: StoredModel) -> ModelVersion:
    """What the tags say, when they can be true: anybody who may edit the version may have written them.

    Raises:
        UnfitModel: they cannot.
    """
    try:
        version = _said(found, model)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _not_ours(found, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise _not_ours(found, f"{FOLDERS}: {error}") from error
    if whole_digest(version.files) != version.digest:
        raise _not_ours(found, "the digest over all files does not follow from those of the files")
    return version


def aliases_of(found: StoredVersion, model: StoredModel) -> tuple[str, ...]:
    """Those that point at it, sorted."""
    return tuple(sorted(alias for alias, holder in model.aliases.items() if holder == found.version))


def _said(found: StoredVersion, model: StoredModel) -> ModelVersion:
    files = {key.removeprefix(FILE_PREFIX): value for key, value in found.tags.items() if key.startswith(FILE_PREFIX)}
    said = {
        "name": found.name,
        "version": found.version,
        "digest": found.tags[DIGEST],
        "files": files,
        "size_bytes": found.tags.get(SIZE),
        "aliases": aliases_of(found, model),
    }
    if FOLDERS in found.tags:
        said["folders"] = json_of(found.tags[FOLDERS])
    return ModelVersion.model_validate(said)


def _not_ours(found: StoredVersion, why: str) -> UnfitModel:
    return UnfitModel(
        f"models:/{found.name}/{found.version}: its tags were changed since it was registered: {why}",
        hint="register the model again from its source",
    )
