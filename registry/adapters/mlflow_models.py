"""Model versions in MLflow: registered with their digests, downloaded only when the digests hold."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from registry.adapters.mlflow_flavor import lay_out
from registry.adapters.mlflow_store import as_global_store, experiment_id, open_client, store_errors
from registry.conventions import DIGEST, FILE_PREFIX, MODEL_FOLDER, SIZE
from registry.digests import compare, digest_files, whole_digest
from registry.errors import DigestMismatch, UnfitModel, UnknownAlias, UnknownModel, UnknownVersion
from registry.huggingface import read_card
from registry.model import Alias, ModelVersion

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion as MlflowVersion
    from mlflow.entities.model_registry import RegisteredModel


PROXIED = "mlflow-artifacts"
"""The scheme of artifacts that the tracking server hands out itself."""
ARTIFACTS_API = "/api/2.0/mlflow-artifacts/artifacts"


class MlflowRegistry:
    """The registry of one MLflow tracking store."""

    def __init__(self, tracking_uri: str) -> None:
        """`tracking_uri` is any that MLflow takes; `embedded_uri(state)` names the one on this machine."""
        self._uri = tracking_uri

    @cached_property
    def _client(self) -> MlflowClient:
        return open_client(self._uri)

    def resolve(self, name: str, reference: str) -> ModelVersion:
        """The version behind an alias or a number.

        Raises:
            UnknownModel, UnknownVersion, UnknownAlias: there is none; the message lists what there is.
            UnfitModel: the version was not registered by tidegate and has no digests.
            StoreUnreachable: MLflow did not answer.
        """
        model, versions = self._read(name)
        number = reference if reference.isdecimal() else _aliases(model).get(reference)
        if number is None:
            raise _unknown_alias(name, reference, model)
        found = next((version for version in versions if str(version.version) == str(int(number))), None)
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
        client = self._client
        with store_errors(self._uri), tempfile.TemporaryDirectory(prefix="tidegate-") as staging:
            logged = client.create_logged_model(experiment_id(client, name), name=name, model_type=card.architecture)
            lay_out(Path(staging), folder, files, card, logged)
            client.log_model_artifacts(logged.model_id, staging)
            # What is cut off before this stays PENDING in MLflow and never becomes a version.
            client.finalize_logged_model(logged.model_id, "READY")
            self._make_model(name)
            with as_global_store(self._uri):
                version = client.create_model_version(
                    name, f"models:/{logged.model_id}", tags=tags, description=description, model_id=logged.model_id
                )
        if alias is not None:
            self.set_alias(name, alias, str(version.version))
        return self.resolve(name, str(version.version))

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Point `alias` at `version`, wherever it pointed before.

        Raises:
            UnknownModel, UnknownVersion: there is nothing to point at.
        """
        found = self.resolve(name, version)
        with store_errors(self._uri):
            self._client.set_registered_model_alias(name, alias, found.version)

    def promote(self, version: ModelVersion) -> None:
        """Champion becomes previous, this version champion, and it is no longer challenger.

        MLflow moves one alias at a time. The old champion is remembered first and only while it is still
        champion, so that saying this again after a crash at any point ends in the same state; the challenger
        goes last, because it is what says that work is left.
        """
        model, _ = self._read(version.name)
        aliases = _aliases(model)
        champion = aliases.get(Alias.CHAMPION)
        with store_errors(self._uri):
            if champion is not None and champion != version.version:
                self._client.set_registered_model_alias(version.name, Alias.PREVIOUS, champion)
            self._client.set_registered_model_alias(version.name, Alias.CHAMPION, version.version)
            if aliases.get(Alias.CHALLENGER) == version.version:
                self._client.delete_registered_model_alias(version.name, Alias.CHALLENGER)

    def mark(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        """Write tags on a version, such as why it was taken back."""
        with store_errors(self._uri):
            for key, value in tags.items():
                self._client.set_model_version_tag(version.name, version.version, key, value)

    def tags(self, version: ModelVersion) -> dict[str, str]:
        """What is written on a version now, by us and by others."""
        with store_errors(self._uri):
            return dict(self._client.get_model_version(version.name, version.version).tags)

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

    def source(self, version: ModelVersion) -> str:
        """The address below which a plain GET brings each of the version's files; empty when there is none.

        Only a tracking server that hands out artifacts itself has one; it carries no credentials.
        """
        with store_errors(self._uri):
            where = self._client.get_model_version_download_uri(version.name, version.version)
        server, artifacts = urlsplit(self._uri), urlsplit(where)
        if server.scheme not in {"http", "https"} or artifacts.scheme != PROXIED or server.hostname is None:
            return ""
        host = server.hostname if server.port is None else f"{server.hostname}:{server.port}"
        below = f"{server.path.rstrip('/')}{ARTIFACTS_API}{artifacts.path.rstrip('/')}"
        return f"{server.scheme}://{host}{below}/{MODEL_FOLDER}"

    def _fetch(self, version: ModelVersion, target: Path) -> Path:
        from mlflow.artifacts import download_artifacts

        with store_errors(self._uri):
            source = self._client.get_model_version_download_uri(version.name, version.version)
            return Path(
                download_artifacts(
                    artifact_uri=f"{source}/{MODEL_FOLDER}", dst_path=str(target), tracking_uri=self._uri
                )
            )

    def _read(self, name: str) -> tuple[RegisteredModel, list[MlflowVersion]]:
        with store_errors(self._uri):
            models = list(self._client.search_registered_models())
            model = next((model for model in models if model.name == name), None)
            if model is None:
                known = ", ".join(sorted(model.name for model in models)) or "none at all"
                raise UnknownModel(f"models:/{name}: no such model in {self._uri}; there are {known}")
            versions = list(self._client.search_model_versions(f"name = '{name}'"))
        return model, sorted(versions, key=lambda version: int(version.version))

    def _make_model(self, name: str) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            # Every version but the first finds its model there.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise


def _aliases(model: RegisteredModel) -> dict[str, str]:
    """Some stores give the number as an integer, others as text."""
    return {alias: str(number) for alias, number in model.aliases.items()}


def _to_version(found: MlflowVersion, model: RegisteredModel) -> ModelVersion:
    files = {key.removeprefix(FILE_PREFIX): value for key, value in found.tags.items() if key.startswith(FILE_PREFIX)}
    number = str(found.version)
    return ModelVersion(
        name=found.name,
        version=number,
        digest=found.tags[DIGEST],
        files=files,
        size_bytes=int(found.tags[SIZE]),
        aliases=tuple(sorted(alias for alias, holder in _aliases(model).items() if holder == number)),
    )


def _list_versions(versions: list[MlflowVersion]) -> str:
    numbers = ", ".join(str(version.version) for version in versions)
    return f"there are {numbers}" if numbers else "there are none"


def _unknown_alias(name: str, alias: str, model: RegisteredModel) -> UnknownAlias:
    there = ", ".join(f"{known} ({number})" for known, number in sorted(_aliases(model).items()))
    return UnknownAlias(
        f"models:/{name}@{alias}: no version has this alias; {'there are ' + there if there else 'there are none yet'}",
        hint=f"set it: tidegate model alias {name} VERSION {alias}",
    )
