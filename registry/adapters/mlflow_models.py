"""Model versions in MLflow: registered with their digests, downloaded only when the digests hold."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from urllib.parse import quote, urlsplit

from registry.adapters.mlflow_address import ARTIFACTS_API, PROXIED, is_server
from registry.adapters.mlflow_store import Store, open_store
from registry.adapters.registering.log import log_version
from registry.adapters.version_files.adopt import adopt, fetch, survey
from registry.conventions import (
    DIGEST,
    MODEL_FOLDER,
    MOST_VERSIONS,
    REPLACED,
    is_version_number,
    refuse_name,
    stage_of,
)
from registry.errors import DigestMismatch, NotAdopted, UnknownAlias, UnknownModel, UnknownSource, UnknownVersion
from registry.layout import find_layout
from registry.model import (
    SERVING,
    AdoptionProgress,
    ModelVersion,
    Move,
    NewVersion,
    ServingAliases,
    StoredModel,
    StoredVersion,
    pointed,
    promoted,
    reinstated,
    taken_over_from,
)
from registry.model_files import compare, digest_files, read_card
from registry.sources import RunSource
from registry.version_tags import aliases_of, digest_tags, version_of
from tidegate.core.errors import UsageError
from tidegate.core.text import redacted

MOST_NAMES = 10
"""Models, or versions of one, that a message names."""


class MlflowRegistry:
    """Model versions and aliases, with the files that runs logged."""

    def __init__(self, tracking_uri: str, registry_uri: str | None = None) -> None:
        """`tracking_uri` is any that MLflow takes; `embedded_uri(state)` names the one on this machine.

        `registry_uri` is that of the store with the versions, where it is another one.
        """
        self._uri, self._registry_uri = tracking_uri, registry_uri or tracking_uri

    @cached_property
    def _store(self) -> Store:
        return open_store(self._uri, self._registry_uri)

    def resolve(self, name: str, reference: str) -> ModelVersion:
        """The version behind an alias or a number.

        Raises:
            UnknownModel, UnknownVersion, UnknownAlias: there is none; the message lists what there is.
            NotAdopted: the version was logged by somebody else, and its files have no digests yet.
            UnfitModel: its digests were changed since they were written.
            StoreUnreachable: MLflow did not answer.
        """
        model, found = self._found(name, reference)
        if DIGEST not in found.tags:
            raise _not_adopted(name, found.version)
        return version_of(found, model)

    def preview(self, name: str, reference: str) -> ModelVersion:
        """As `resolve`, and without digests and files where nobody adopted the version; nothing is written.

        Raises:
            UnfitModel: also when such a version could not be adopted.
        """
        model, found = self._found(name, reference)
        if DIGEST in found.tags:
            return version_of(found, model)
        seen = survey(self._store, found)
        return _unproven(found, model, size_bytes=seen.size_bytes, folders=seen.layout.folders)

    def adopt(
        self, name: str, reference: str, *, folder: str | None = None, progress: AdoptionProgress | None = None
    ) -> ModelVersion:
        """Note the digests of a version's files as its tags, however it was logged. Nothing is copied or moved.

        A version that has them already stays as it is, and is not read.

        Args:
            name: of the registered model.
            reference: an alias, or the version's number.
            folder: where the Hugging Face folder lies among the artifacts, if there are several.
            progress: told what will be read, and how far that is.

        Raises:
            UnfitModel: there is no folder that tidegate serves, or there are several.
            UsageError: it was adopted before, with another folder.
        """
        model, found = self._found(name, reference)
        if DIGEST not in found.tags:
            seen = survey(self._store, found, folder)
            adopt(self._store, found, seen, progress or (lambda *_: None))
            return self.resolve(name, found.version)
        version = version_of(found, model)
        if folder is not None and folder.strip("/") != version.folders[0]:
            raise UsageError(
                f"{version.uri}: its folder {version.folders[0]!r} was adopted before", hint="log a new version"
            )
        return version

    def versions(self, name: str) -> list[ModelVersion]:
        """Every version, oldest first; those that nobody adopted have no digests, and no size.

        Raises:
            UnknownModel: no model has that name.
        """
        model, versions = self._read(name)
        return [version_of(each, model) if DIGEST in each.tags else _unproven(each, model) for each in versions]

    def register(
        self,
        name: str,
        folder: Path,
        *,
        description: str | None = None,
        alias: str | None = None,
        files: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> ModelVersion:
        """Log the Hugging Face directory `folder` as the next version of `name`.

        Its weights are copied once, into MLflow's store.

        Args:
            name: of the registered model.
            folder: with all files.
            description: for people.
            alias: that the version gets.
            files: the digests of the folder's files, where somebody has read them already.
            tags: to write on the version besides.

        Raises:
            UnfitModel: the folder is not one that tidegate serves.
        """
        refuse_name(name)
        files = digest_files(folder) if files is None else files
        card = read_card(folder, files)
        size = sum((folder / path).stat().st_size for path in files)
        told = {**(tags or {}), **digest_tags(files, size)}
        number = log_version(
            self._store.log, name, folder, files, card, address=self._uri, tags=told, description=description
        )
        if alias is not None:
            self.set_alias(name, alias, number)
        return self.resolve(name, number)

    def register_run(
        self,
        name: str,
        source: RunSource,
        *,
        description: str | None = None,
        alias: str | None = None,
        progress: AdoptionProgress | None = None,
    ) -> ModelVersion:
        """Make what a run logged the next version of `name`. Its files are read once, and stay where they are.

        Raises:
            UnknownSource: there is no such run, or nothing in that folder of it.
            UnfitModel: there is no one folder that tidegate serves; no version was made.
        """
        refuse_name(name)
        run = self._store.runs.run(source.run) if source.run.isascii() else None
        if run is None:
            raise UnknownSource(
                f"{source.uri}: there is no such run in {redacted(self._uri)}",
                hint="another store: MLFLOW_TRACKING_URI",
            )
        listed = self._store.files.listed(f"{run.artifacts.rstrip('/')}/{source.path}".rstrip("/"))
        if not listed:
            raise UnknownSource(f"{source.uri}: no file lies there", hint="name a folder of the run's artifacts")
        find_layout(listed)
        new = NewVersion(name=name, source=source.uri, run=source.run, tags={}, description=description)
        version = self.adopt(name, self._store.models.add_version(new), progress=progress)
        if alias is None:
            return version
        self.set_alias(name, alias, version.version)
        return self.resolve(name, version.version)

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Point `alias` at `version`, wherever it pointed before.

        Raises:
            UnknownModel, UnknownVersion: there is nothing to point at.
            UsageError: the champion would be its own `previous`.
        """
        model, found = self._found(name, version)
        self._move(name, pointed(alias, found.version, model.aliases))

    def promote(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        """Champion becomes previous, this version champion, and it is no longer challenger.

        MLflow moves one alias at a time, so this may be repeated after a crash at any point.
        """
        model, versions = self._read(version.name)
        aliases, noted = model.aliases, _replaced(version, versions)
        replaced = taken_over_from(version.version, aliases, noted, names)
        if replaced is not None and replaced != noted:
            self.mark(version, {REPLACED: replaced})
        self._move(version.name, promoted(version.version, aliases, replaced, _registered(versions), names))

    def reinstate(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        """Make the version champion again, as after a rollback; previous is the one before it, where that is known."""
        model, versions = self._read(version.name)
        replaced = _replaced(version, versions)
        self._move(version.name, reinstated(version.version, model.aliases, replaced, _registered(versions), names))

    def _move(self, name: str, moves: Iterable[Move]) -> None:
        for alias, version in moves:
            self._store.models.set_alias(name, alias, version)

    def mark(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        """Write tags on a version, such as why it was taken back."""
        self._store.models.tag_version(version.name, version.version, tags)

    def tags(self, version: ModelVersion) -> dict[str, str]:
        """What is written on a version now, by us and by others."""
        found = self._store.models.version(version.name, version.version)
        if found is None:
            raise UnknownVersion(
                f"{version.uri} is no longer in {redacted(self._registry_uri)}",
                hint="register it again, or name a version that is there: `tidegate model list`",
            )
        return dict(found.tags)

    def download(self, version: ModelVersion, target: Path) -> Path:
        """The version's files in `target`/model, every one proven against its digest.

        Files that are there already are hashed again (0.3 s for 270 MB) and kept when all are right. New ones
        appear under their final name only after the proof, as one rename.

        Raises:
            DigestMismatch: the store's files are not the registered ones; names each.
        """
        if not version.digest:
            raise _not_adopted(version.name, version.version)
        folder = target / MODEL_FOLDER
        if folder.is_dir() and not compare(version.files, digest_files(folder)):
            return folder
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".download-") as temporary:
            fetched = Path(temporary) / MODEL_FOLDER
            difference = compare(version.files, fetch(self._store, version, fetched))
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
        return self._store.place(version.name, version.version)

    def source(self, version: ModelVersion) -> str:
        """The addresses below which a plain GET brings each of the version's files; empty when there is none.

        They are tried in this order; a blank parts them. Only a tracking server that hands out artifacts itself has
        one; they carry no credentials.
        """
        artifacts = urlsplit(self.location(version))
        if not is_server(self._uri) or artifacts.scheme != PROXIED:
            return ""
        server = redacted(self._uri).rstrip("/")
        root = f"{server}{ARTIFACTS_API}{artifacts.path.rstrip('/')}"
        return " ".join(f"{root}/{quote(folder)}".rstrip("/") for folder in version.folders)

    def _found(self, name: str, reference: str) -> tuple[StoredModel, StoredVersion]:
        """A version is asked for by its number: a model may have thousands."""
        model = self._model(name)
        number = reference if is_version_number(reference) else model.aliases.get(reference)
        if number is None:
            raise _unknown_alias(name, reference, model)
        # Python takes no number of thousands of digits.
        number = str(int(number[:20]))
        found = self._store.models.version(name, number) if int(number) <= MOST_VERSIONS else None
        if found is None:
            there = _list_versions(self._store.models.versions(name))
            raise UnknownVersion(f"models:/{name}/{reference}: no such version", hint=there)
        return model, found

    def _read(self, name: str) -> tuple[StoredModel, Sequence[StoredVersion]]:
        return self._model(name), self._store.models.versions(name)

    def _model(self, name: str) -> StoredModel:
        refuse_name(name)
        models = self._store.models
        model = models.model(name)
        if model is None:
            near = models.names_like(_first_word(name), MOST_NAMES) or models.names_like("", MOST_NAMES)
            raise UnknownModel(
                f"models:/{name}: no such model in {redacted(self._registry_uri)}, which has {_some(near)}",
                hint="another store: --tracking-uri, MLFLOW_TRACKING_URI or MLFLOW_REGISTRY_URI; "
                "a first version: `tidegate model add`",
            )
        return model


def _first_word(name: str) -> str:
    """What may be right in a name that is wrong."""
    return "".join(takewhile(str.isalnum, name))


def _some(names: Sequence[str]) -> str:
    """A few of them: a store may be that of a whole company."""
    if not names:
        return "none"
    return f"{', '.join(names)}{' and more' if len(names) == MOST_NAMES else ''}"


def _not_adopted(name: str, version: str) -> NotAdopted:
    return NotAdopted(
        f"models:/{name}/{version}: was not registered by tidegate, so its files have no digests",
        hint=f"run: tidegate model add {name} {version}; `deliver` does it by itself",
    )


def _unproven(
    found: StoredVersion, model: StoredModel, *, size_bytes: int = 0, folders: tuple[str, ...] = (MODEL_FOLDER,)
) -> ModelVersion:
    return ModelVersion(
        name=found.name,
        version=found.version,
        digest="",
        files={},
        size_bytes=size_bytes,
        aliases=aliases_of(found, model),
        folders=folders,
    )


def _registered(versions: Iterable[StoredVersion]) -> Collection[str]:
    """The numbers of those that tidegate can serve."""
    return [version.version for version in versions if DIGEST in version.tags]


def _replaced(version: ModelVersion, versions: Iterable[StoredVersion]) -> str | None:
    """What is noted on it: the champion that it took over from."""
    return next((each.tags.get(REPLACED) for each in versions if each.version == version.version), None)


def _list_versions(versions: Sequence[StoredVersion]) -> str:
    """The newest: a model may have thousands."""
    numbers = [version.version for version in versions]
    earlier = f" and {len(numbers) - MOST_NAMES} earlier ones" if len(numbers) > MOST_NAMES else ""
    return f"there are {', '.join(numbers[-MOST_NAMES:])}{earlier}" if numbers else "there are none"


def _unknown_alias(name: str, alias: str, model: StoredModel) -> UnknownAlias:
    there = ", ".join(f"{known} ({number})" for known, number in sorted(model.aliases.items()))
    return UnknownAlias(
        f"models:/{name}@{alias}: no version has this alias; {'there are ' + there if there else 'there are none yet'}",
        hint=f"set it: tidegate model alias {name} VERSION {alias}"
        + ("; MLflow's stages, of which this is one, are not read" if stage_of(alias) else ""),
    )
