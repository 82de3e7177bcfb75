"""Model versions in MLflow: registered with their digests, downloaded only when the digests hold."""

from __future__ import annotations

import hashlib
import math
import re
import tempfile
from collections.abc import Mapping
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import ValidationError

from registry import conventions as tag
from registry.conventions import MODEL_FOLDER, SUMS, is_version_number
from registry.errors import DigestMismatch, UnfitModel, UnknownAlias, UnknownModel
from registry.files import (
    architecture_of,
    compare,
    digest_file,
    digest_files,
    places_in,
    read_sums,
    whole_digest,
)
from registry.hub import PLACE, fetch_from_hub
from registry.model import SERVING, Alias, ModelVersion, Serving, ServingAliases, StoredVersion
from registry.ports import Store, is_server
from registry.registering import adopt, content_of, survey, together, upload
from tidegate.core.adapters.extras import require
from tidegate.core.errors import UsageError
from tidegate.core.text import foreign, json_of, redacted

MOST_NAMES = 10
"""Models, or versions of one, that a message names."""
PROXIED, ARTIFACTS_API = "mlflow-artifacts", "/api/2.0/mlflow-artifacts/artifacts"
"""The scheme of artifacts that the tracking server hands out itself, and where it does."""
_ADDRESS = re.compile(r"[a-z0-9-]{2,}:/")


class MlflowRegistry:
    """Model versions and aliases, with the files that runs logged."""

    def __init__(self, store: Store | str) -> None:
        """`store` may be its address: any that MLflow takes; `embedded_uri(state)` names that of this machine."""
        if isinstance(store, str):
            # It takes a second to load.
            from registry.mlflow import MlflowStore

            store = MlflowStore(store)
        self._store: Store = store
        self._sums: dict[tuple[str, str], str] = {}

    def resolve(self, name: str, reference: str) -> ModelVersion:
        """The version behind an alias or a number, with the digests of its files.

        Raises:
            UsageError: there is none; the message lists what there is.
            UnfitModel: the version was logged by somebody else, and its files have no digests yet; or they were changed
                since they were written.
            StoreUnreachable: MLflow did not answer.
        """
        found, version = self._found(name, reference)
        if not version.digest:
            raise _not_adopted(found.uri)
        return self._with_files(version, found)

    def look_up(self, name: str, reference: str) -> ModelVersion:
        """The same as its tags say it: without files, and without a digest where nobody adopted it."""
        return self._found(name, reference)[1]

    def preview(self, name: str, reference: str) -> ModelVersion:
        """As `resolve`, and without digests and files where nobody adopted the version; nothing is written.

        Raises:
            UnfitModel: also when such a version could not be adopted.
        """
        found, version = self._found(name, reference)
        if version.digest:
            return self._with_files(version, found)
        seen = survey(self._store, found)
        return version.model_copy(update={"size_bytes": seen.size_bytes, "folders": seen.folders})

    def adopt(self, name: str, reference: str) -> ModelVersion:
        """Note the digests of a version's files, however it was logged. No model is copied or moved.

        A version that has them already stays as it is, and is not read.

        Args:
            name: of the registered model.
            reference: an alias, or the version's number.

        Raises:
            UnfitModel: there is no folder that tidegate serves, or there are several.
            DigestMismatch: a file was cut off, or changed while it was read.
        """
        found, version = self._found(name, reference)
        if not version.digest:
            adopt(self._store, found)
        return self.resolve(name, found.version)

    def versions(self, name: str) -> list[ModelVersion]:
        """Every version as its tags say it, oldest first, as `look_up`.

        Raises:
            UnknownModel: no model has that name.
        """
        aliases = self._aliases(name)
        return [_version_of(each, aliases) for each in self._store.versions(name)]

    def add(self, name: str, source: str, *, alias: str | None = None) -> ModelVersion:
        """Make a model's next version of `source`; a version's number or alias names one that is there, and is adopted.

        Args:
            name: of the registered model.
            source: a folder, hf://ORGANISATION/NAME@REVISION, or a version's number or alias.
            alias: for the version.

        Raises:
            UnfitModel: what lies there is not served.
            RegistryError: the hub or the store did not do its part.
            UsageError: there is no such source, or an argument is wrong.
        """
        if alias is not None:
            tag.refuse_alias(alias)
        if re.fullmatch(r"[\w-]+", source) and (is_version_number(source) or not Path(source).exists()):
            version = self.adopt(name, source)
        elif hub := PLACE.fullmatch(source):
            require("huggingface_hub")
            uri, folder, files = fetch_from_hub(hub["repository"], hub["revision"] or "main")
            version = self.register(name, folder, files=files, tags={tag.SOURCE: uri})
        elif _ADDRESS.match(source):
            raise UsageError(
                f"`{source}` is no source of a model version",
                hint="write a folder, hf://ORGANISATION/NAME@REVISION, or the number of a version that MLflow has",
            )
        else:
            version = self.register(name, Path(source))
        if alias is None:
            return version
        self.set_alias(name, alias, version.version)
        return self.resolve(name, version.version)

    def register(
        self,
        name: str,
        folder: Path,
        *,
        alias: str | None = None,
        files: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> ModelVersion:
        """Log the Hugging Face directory `folder` as the next version of `name`.

        Its weights are copied once, into MLflow's store.

        Args:
            name: of the registered model.
            folder: with all files.
            alias: that the version gets.
            files: the digests of the folder's files, where somebody has read them already.
            tags: to write on the version besides.

        Raises:
            UnfitModel: the folder is not one that tidegate serves.
            StoreUnreachable: the store did not do its part; what is cut off never becomes a version.
        """
        tag.refuse_name(name)
        files = digest_files(folder) if files is None else files
        architecture = architecture_of(str(folder), files, lambda path: (folder / path).read_bytes())
        size = sum((folder / path).stat().st_size for path in files)
        pending = upload(self._store, name, folder, files, architecture)
        told = {**(tags or {}), tag.SIZE: str(size), tag.DIGEST: whole_digest(files)}
        number = self._store.add_version(name, pending.source, tags=told)
        if alias is not None:
            self.set_alias(name, alias, number)
        return self.resolve(name, number)

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Point `alias` at `version`, wherever it pointed before.

        Raises:
            UsageError: there is nothing to point at.
        """
        self._store.set_alias(name, alias, self._found(name, version)[0].version)

    def promote(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        """Champion becomes previous, this version champion, and it is no longer challenger.

        MLflow moves one alias at a time, so this may be repeated after a crash at any point: the champion that the
        version takes over from is noted first, and the challenger goes last, because it says that work is left. Another
        alias that asked for it is a team's own, and stays where they put it.
        """
        name, number, aliases = version.name, version.version, self._aliases(version.name)
        champion = aliases.get(names.champion)
        if champion not in (None, number, Serving.of(self.tags(version)).replaced):
            self.mark(version, Serving(replaced=champion or "").tag)
        self.reinstate(version, names)
        if aliases.get(Alias.CHALLENGER) == number and Alias.CHALLENGER not in (names.champion, names.previous):
            self._store.set_alias(name, Alias.CHALLENGER, None)

    def reinstate(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        """Make the version champion again, as after a rollback; previous is the one before it, where that is known."""
        name, number, aliases = version.name, version.version, self._aliases(version.name)
        champion, previous = aliases.get(names.champion), aliases.get(names.previous)
        versions = {each.version: each.tags for each in self._store.versions(name)}
        # Of one that stays champion nothing may be noted, as when somebody set the aliases by hand.
        known = Serving.of(versions.get(number, {})).replaced, previous if champion == number else None
        may_serve = [each for each, tags in versions.items() if tag.DIGEST in tags and each != number]
        wanted = next((each for each in known if each in may_serve), None)
        # A `previous` of before must not be where a rollback goes to when this dies in the middle.
        if previous not in (None, wanted):
            self._store.set_alias(name, names.previous, None)
        if champion != number:
            self._store.set_alias(name, names.champion, number)
        if wanted not in (None, previous):
            self._store.set_alias(name, names.previous, wanted)

    def mark(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        """Write tags on a version, such as why it was rolled back; of `Serving` only the fields that are given."""
        if tag.SERVING_TAG in tags:
            serving = Serving.of(tags).onto(Serving.of(self.tags(version)))
            tags = {**tags, **serving.tag}
        self._store.tag_version(version.name, version.version, tags)

    def tags(self, version: ModelVersion) -> dict[str, str]:
        """What is written on a version now, by us and by others."""
        found = self._store.version(version.name, version.version)
        if found is None:
            raise UsageError(
                f"{version.uri} is no longer in {redacted(self._store.uri)}",
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
            raise _not_adopted(version.uri)
        if whole_digest(version.files) != version.digest:
            raise DigestMismatch(f"{version.uri}: its files do not make its digest", hint="register it again")
        folder = target / MODEL_FOLDER
        if folder.is_dir() and not compare(version.files, digest_files(folder)):
            return folder
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".download-") as temporary:
            fetched = Path(temporary) / MODEL_FOLDER
            difference = compare(version.files, self._fetched(version, fetched))
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

    def _fetched(self, version: ModelVersion, target: Path) -> dict[str, str]:
        """The digests of what was brought to `target`; files that were put there since, and have none, are not."""
        address = self.location(version)
        places = places_in(version.folders, self._store.listed(address))

        def fetch(path: str) -> str:
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            self._store.fetch(address, places[path], file)
            return digest_file(file)

        return together(fetch, [path for path in version.files if path in places])

    def assessed(
        self, name: str, experiment: str, tags: Mapping[str, str], *, traced: datetime, since: datetime, until: datetime
    ) -> tuple[int, float] | str:
        """How many assessments of that name were made in (since, until], and their sum; why there are none, where no
        trace that began since `traced`, and has these tags, has one that counts.

        Numbers count as they are, `yes` and true as 1, `no` and false as 0.
        """
        milliseconds = [round(each.timestamp() * 1000) for each in (traced, since, until)]
        found = self._store.assessments(experiment, name, tags, traced=milliseconds[0])
        if found is None:
            return f"MLflow has no experiment {experiment}"
        said = [(at, _score(value)) for at, value in found]
        counted = [(at, score) for at, score in said if score is not None]
        if not counted:
            those = ", ".join(f"{key}={value}" for key, value in tags.items())
            what = (
                f"no assessment {name} that is yes, no, or a number of 0 or more" if said else f"no assessment {name}"
            )
            return f"MLflow has {what} of traces with {those} in experiment {experiment}"
        new = [score for at, score in counted if milliseconds[1] < at <= milliseconds[2]]
        return len(new), sum(new)

    def location(self, version: ModelVersion) -> str:
        """Where MLflow keeps the version's files: `mlflow-artifacts:/...` when it hands them out itself."""
        return self._store.address(version.name, version.version)

    def source(self, version: ModelVersion) -> str:
        """The addresses below which a plain GET brings each of the version's files; empty when there is none.

        They are tried in this order; a blank parts them. Only a tracking server that hands out artifacts itself has
        one; they carry no credentials.
        """
        artifacts, server = urlsplit(self.location(version)), redacted(self._store.uri).rstrip("/")
        if not is_server(server) or artifacts.scheme != PROXIED:
            return ""
        root = f"{server}{ARTIFACTS_API}{artifacts.path.rstrip('/')}"
        return " ".join(f"{root}/{quote(folder)}".rstrip("/") for folder in version.folders)

    def _with_files(self, version: ModelVersion, found: StoredVersion) -> ModelVersion:
        """The same with its files, as its `SUMS` has them. Anybody who may edit the version may have written it."""
        text = self._sums.get((version.uri, version.digest))
        if text is None:
            adopted = _adopted(found)
            address = adopted["sums"] if adopted else f"{self.location(version)}/{MODEL_FOLDER}"
            if SUMS not in self._store.listed(address):
                raise _changed(found, f"{address} has no {SUMS}")
            with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
                self._store.fetch(address, SUMS, Path(made, SUMS))
                text = content_of(Path(made, SUMS), f"{found.uri}: {SUMS}").decode(errors="replace")
        if hashlib.sha256(text.encode()).hexdigest() != version.digest:
            raise _changed(found, f"{tag.DIGEST} is not the digest of its {SUMS}")
        self._sums[version.uri, version.digest] = text
        with foreign(lambda why: _changed(found, why)):
            return ModelVersion.model_validate(version.model_dump() | {"files": read_sums(text)})

    def _found(self, name: str, reference: str) -> tuple[StoredVersion, ModelVersion]:
        """A version is asked for by its number: a model may have thousands."""
        aliases = self._aliases(name)
        number = reference if is_version_number(reference) else aliases.get(reference)
        if number is None:
            there = ", ".join(f"{known} ({of})" for known, of in sorted(aliases.items()))
            raise UnknownAlias(
                f"models:/{name}@{reference}: no version has this alias; there are {there or 'none yet'}",
                hint=f"set it: tidegate model alias {name} VERSION {reference}",
            )
        # Python takes no number of thousands of digits.
        number = str(int(number[:20]))
        found = self._store.version(name, number) if int(number) <= tag.MOST_VERSIONS else None
        if found is None:
            numbers = [version.version for version in self._store.versions(name)]
            earlier = f" and {len(numbers) - MOST_NAMES} earlier ones" if len(numbers) > MOST_NAMES else ""
            there = f"there are {', '.join(numbers[-MOST_NAMES:]) or 'none'}{earlier}"
            raise UsageError(f"models:/{name}/{reference}: no such version", hint=there)
        return found, _version_of(found, aliases)

    def _aliases(self, name: str) -> Mapping[str, str]:
        tag.refuse_name(name)
        aliases = self._store.aliases(name)
        if aliases is None:
            # What may be right in a name that is wrong.
            word = "".join(takewhile(str.isalnum, name))
            near = self._store.names_like(word, MOST_NAMES) or self._store.names_like("", MOST_NAMES)
            # A store may be that of a whole company.
            more = " and more" if len(near) == MOST_NAMES else ""
            raise UnknownModel(
                f"models:/{name}: no such model in {redacted(self._store.uri)}, which has "
                f"{', '.join(near) or 'none'}{more}",
                hint="another store: --tracking-uri or MLFLOW_TRACKING_URI; a first version: `tidegate model add`",
            )
        return aliases


def _version_of(found: StoredVersion, aliases: Mapping[str, str]) -> ModelVersion:
    """What the tags say, when they can be true: anybody who may edit the version may have written them.

    Raises:
        UnfitModel: they cannot.
    """
    adopted = _adopted(found)
    said = {
        "name": found.name,
        "version": found.version,
        "digest": found.tags.get(tag.DIGEST, ""),
        "files": {},
        "size_bytes": found.tags.get(tag.SIZE, 0),
        "aliases": tuple(sorted(alias for alias, holder in aliases.items() if holder == found.version)),
        **({"folders": adopted["folders"]} if adopted else {}),
    }
    try:
        return ModelVersion.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _changed(found, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _adopted(found: StoredVersion) -> Mapping[str, Any] | None:
    """What is kept of a version that was adopted."""
    if tag.ADOPTED not in found.tags:
        return None
    with foreign(lambda why: _changed(found, f"{tag.ADOPTED}: {why}")):
        said = json_of(found.tags[tag.ADOPTED])
        return {"sums": str(said["sums"]), "folders": said["folders"]}


def _changed(found: StoredVersion, why: str) -> UnfitModel:
    return UnfitModel(
        f"{found.uri}: it was changed since it was registered: {why}", hint="register the model again from its source"
    )


def _not_adopted(uri: str) -> UnfitModel:
    name, _, version = uri.removeprefix("models:/").rpartition("/")
    return UnfitModel(
        f"{uri}: was not registered by tidegate, so its files have no digests",
        hint=f"run: tidegate model add {name} {version}; `deliver` does it by itself",
    )


def _score(said: object) -> float | None:
    """What counts of an assessment's value, which may be anything."""
    if isinstance(said, str):
        return {"yes": 1.0, "no": 0.0}.get(said.lower())
    return float(said) if isinstance(said, (int, float)) and math.isfinite(said) and said >= 0 else None
