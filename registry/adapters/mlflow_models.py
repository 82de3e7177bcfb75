"""Model versions in MLflow: registered with their digests, downloaded only when the digests hold."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from registry.adapters.mlflow_address import ARTIFACTS_API, PROXIED, is_server
from registry.adapters.mlflow_register import log_version
from registry.adapters.mlflow_store import Store, open_store
from registry.conventions import DIGEST, FILE_PREFIX, MODEL_FOLDER, REPLACED, SIZE
from registry.errors import DigestMismatch, UnfitModel, UnknownAlias, UnknownModel, UnknownVersion
from registry.model import (
    ModelVersion,
    Move,
    StoredModel,
    StoredVersion,
    pointed,
    promoted,
    reinstated,
    taken_over_from,
)
from registry.model_files import compare, digest_files, read_card, whole_digest
from tidegate.core.errors import without_credentials
from tidegate.core.text import redacted

MOST_NAMES = 10
"""Models that a message names."""


class MlflowRegistry:
    """The registry of one MLflow tracking store."""

    def __init__(self, tracking_uri: str) -> None:
        """`tracking_uri` is any that MLflow takes; `embedded_uri(state)` names the one on this machine."""
        self._uri = tracking_uri

    @cached_property
    def _store(self) -> Store:
        return open_store(self._uri)

    def resolve(self, name: str, reference: str) -> ModelVersion:
        """The version behind an alias or a number.

        Raises:
            UnknownModel, UnknownVersion, UnknownAlias: there is none; the message lists what there is.
            UnfitModel: the version was not registered by tidegate and has no digests, or they were changed since.
            StoreUnreachable: MLflow did not answer.
        """
        model, versions = self._read(name)
        number = reference if reference.isdecimal() else model.aliases.get(reference)
        if number is None:
            raise _unknown_alias(name, reference, model)
        found = next((version for version in versions if version.version == str(int(number))), None)
        if found is None:
            raise UnknownVersion(f"models:/{name}/{reference}: no such version; {_list_versions(versions)}")
        if DIGEST not in found.tags:
            raise UnfitModel(
                f"models:/{name}/{found.version}: was not registered by tidegate, so its files have no digests",
                hint="register its folder with tidegate",
            )
        return _to_version(found, model)

    def versions(self, name: str) -> list[ModelVersion]:
        """Every version that tidegate registered, oldest first.

        Raises:
            UnknownModel: no model has that name.
        """
        model, versions = self._read(name)
        return [_to_version(version, model) for version in versions if DIGEST in version.tags]

    def register(
        self, name: str, folder: Path, *, description: str | None = None, alias: str | None = None
    ) -> ModelVersion:
        """Log the Hugging Face directory `folder` as the next version of `name`.

        Its weights are copied once, into MLflow's store.

        Raises:
            UnfitModel: the folder is not one that tidegate serves.
        """
        files = digest_files(folder)
        card = read_card(folder, files)
        size = sum((folder / path).stat().st_size for path in files)
        tags = {DIGEST: whole_digest(files), SIZE: str(size)} | {FILE_PREFIX + path: files[path] for path in files}
        number = log_version(self._uri, name, folder, files, card, tags=tags, description=description)
        if alias is not None:
            self.set_alias(name, alias, number)
        return self.resolve(name, number)

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Point `alias` at `version`, wherever it pointed before.

        Raises:
            UnknownModel, UnknownVersion: there is nothing to point at.
            UsageError: the champion would be its own `previous`.
        """
        found = self.resolve(name, version)
        model, _ = self._read(name)
        self._move(name, pointed(alias, found.version, model.aliases))

    def promote(self, version: ModelVersion) -> None:
        """Champion becomes previous, this version champion, and it is no longer challenger.

        MLflow moves one alias at a time, so this may be repeated after a crash at any point.
        """
        model, versions = self._read(version.name)
        aliases, noted = model.aliases, _replaced(version, versions)
        replaced = taken_over_from(version.version, aliases, noted)
        if replaced is not None and replaced != noted:
            self.mark(version, {REPLACED: replaced})
        self._move(version.name, promoted(version.version, aliases, replaced, _registered(versions)))

    def reinstate(self, version: ModelVersion) -> None:
        """Make the version champion again, as after a rollback; previous is the one before it, where that is known."""
        model, versions = self._read(version.name)
        replaced = _replaced(version, versions)
        self._move(version.name, reinstated(version.version, model.aliases, replaced, _registered(versions)))

    def _move(self, name: str, moves: Iterable[Move]) -> None:
        for alias, version in moves:
            self._store.models.set_alias(name, alias, version)

    def mark(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        """Write tags on a version, such as why it was taken back."""
        for key, value in tags.items():
            self._store.models.tag_version(version.name, version.version, key, value)

    def tags(self, version: ModelVersion) -> dict[str, str]:
        """What is written on a version now, by us and by others."""
        found = self._store.models.version(version.name, version.version)
        if found is None:
            raise UnknownVersion(f"{version.uri} is no longer in {redacted(self._uri)}")
        return dict(found.tags)

    def download(self, version: ModelVersion, target: Path) -> Path:
        """The version's files in `target`/model, every one proven against its digest.

        Files that are there already are hashed again (0.3 s for 270 MB) and kept when all are right. New ones
        appear under their final name only after the proof, as one rename.

        Raises:
            DigestMismatch: the store's files are not the registered ones; names each.
        """
        folder = target / MODEL_FOLDER
        if folder.is_dir() and not compare(version.files, digest_files(folder)):
            return folder
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".download-") as temporary:
            fetched = self._fetch(version, Path(temporary))
            difference = compare(version.files, digest_files(fetched))
            if difference:
                raise DigestMismatch(
                    f"{version.uri}: files differ from those registered: {difference}",
                    hint="register the version again from its source",
                )
            # A rename cannot replace a folder that has files.
            if folder.exists():
                folder.rename(Path(temporary) / "replaced")
            fetched.rename(folder)
        return folder

    def location(self, version: ModelVersion) -> str:
        """Where MLflow keeps the version's files: `mlflow-artifacts:/...` when it hands them out itself."""
        return self._store.models.address(version.name, version.version)

    def source(self, version: ModelVersion) -> str:
        """The address below which a plain GET brings each of the version's files; empty when there is none.

        Only a tracking server that hands out artifacts itself has one; it carries no credentials.
        """
        artifacts = urlsplit(self.location(version))
        if not is_server(self._uri) or artifacts.scheme != PROXIED:
            return ""
        server = without_credentials(self._uri).rstrip("/")
        return f"{server}{ARTIFACTS_API}{artifacts.path.rstrip('/')}/{MODEL_FOLDER}"

    def _fetch(self, version: ModelVersion, target: Path) -> Path:
        address = self._store.models.address(version.name, version.version)
        return self._store.artifacts.download_tree(f"{address}/{MODEL_FOLDER}", target)

    def _read(self, name: str) -> tuple[StoredModel, Sequence[StoredVersion]]:
        models = self._store.models
        model = models.model(name)
        if model is None:
            raise UnknownModel(
                f"models:/{name}: no such model in {redacted(self._uri)}, which has {_some(models.model_names())}",
                hint="another store: --tracking-uri or MLFLOW_TRACKING_URI; a first version: `tidegate model register`",
            )
        return model, models.versions(name)


def _some(names: Sequence[str]) -> str:
    """A few of them: a store may be that of a whole company."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}" if names else "none"


def _registered(versions: Iterable[StoredVersion]) -> Collection[str]:
    """The numbers of those that tidegate can serve."""
    return [version.version for version in versions if DIGEST in version.tags]


def _replaced(version: ModelVersion, versions: Iterable[StoredVersion]) -> str | None:
    """What is noted on it: the champion that it took over from."""
    return next((each.tags.get(REPLACED) for each in versions if each.version == version.version), None)


def _to_version(found: StoredVersion, model: StoredModel) -> ModelVersion:
    """What the tags say, when they can be true: anybody who may edit the version may have written them.

    Raises:
        UnfitModel: they cannot.
    """
    try:
        version = _said(found, model)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _not_ours(found, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if whole_digest(version.files) != version.digest:
        raise _not_ours(found, "the digest over all files does not follow from those of the files")
    return version


def _not_ours(found: StoredVersion, why: str) -> UnfitModel:
    return UnfitModel(
        f"models:/{found.name}/{found.version}: its tags were changed since it was registered: {why}",
        hint="register the model again from its source",
    )


def _said(found: StoredVersion, model: StoredModel) -> ModelVersion:
    files = {key.removeprefix(FILE_PREFIX): value for key, value in found.tags.items() if key.startswith(FILE_PREFIX)}
    said = {
        "name": found.name,
        "version": found.version,
        "digest": found.tags[DIGEST],
        "files": files,
        "size_bytes": found.tags.get(SIZE),
        "aliases": sorted(alias for alias, holder in model.aliases.items() if holder == found.version),
    }
    return ModelVersion.model_validate(said)


def _list_versions(versions: Sequence[StoredVersion]) -> str:
    numbers = ", ".join(version.version for version in versions)
    return f"there are {numbers}" if numbers else "there are none"


def _unknown_alias(name: str, alias: str, model: StoredModel) -> UnknownAlias:
    there = ", ".join(f"{known} ({number})" for known, number in sorted(model.aliases.items()))
    return UnknownAlias(
        f"models:/{name}@{alias}: no version has this alias; {'there are ' + there if there else 'there are none yet'}",
        hint=f"set it: tidegate model alias {name} VERSION {alias}",
    )
