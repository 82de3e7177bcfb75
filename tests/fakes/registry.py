"""A registry in memory, which keeps the folders it was given."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from registry.aliases import Move, pointed, promoted, reinstated, taken_over_from
from registry.conventions import REPLACED
from registry.digests import compare, digest_files, whole_digest
from registry.errors import DigestMismatch, UnknownAlias, UnknownModel, UnknownVersion
from registry.huggingface import read_card
from registry.model import ModelVersion


class FakeRegistry:
    """Behaves as `MlflowRegistry` does; `marks` holds what was written on versions."""

    def __init__(self) -> None:
        self.folders: dict[tuple[str, str], Path] = {}
        self.marks: dict[tuple[str, str], dict[str, str]] = {}
        self._versions: dict[str, list[ModelVersion]] = {}
        self._aliases: dict[str, dict[str, str]] = {}

    def register(
        self, name: str, folder: Path, *, description: str | None = None, alias: str | None = None
    ) -> ModelVersion:
        files = digest_files(folder)
        read_card(folder, files)
        known = self._versions.setdefault(name, [])
        size = sum((folder / path).stat().st_size for path in files)
        number = str(len(known) + 1)
        known.append(ModelVersion(name=name, version=number, digest=whole_digest(files), files=files, size_bytes=size))
        self.folders[name, number] = folder
        if alias is not None:
            self.set_alias(name, alias, number)
        return self.resolve(name, number)

    def resolve(self, name: str, reference: str) -> ModelVersion:
        versions = self.versions(name)
        aliases = self._aliases.get(name, {})
        if not reference.isdecimal() and reference not in aliases:
            raise UnknownAlias(f"models:/{name}@{reference}: no version has this alias")
        number = aliases.get(reference, reference)
        found = next((version for version in versions if version.version == number), None)
        if found is None:
            numbers = ", ".join(version.version for version in versions)
            raise UnknownVersion(f"models:/{name}/{number}: no such version; there are {numbers}")
        return found

    def versions(self, name: str) -> list[ModelVersion]:
        if name not in self._versions:
            raise UnknownModel(f"models:/{name}: no such model")
        aliases = self._aliases.get(name, {})
        return [
            version.model_copy(
                update={"aliases": tuple(sorted(alias for alias in aliases if aliases[alias] == version.version))}
            )
            for version in self._versions[name]
        ]

    def set_alias(self, name: str, alias: str, version: str) -> None:
        found = self.resolve(name, version)
        self._move(name, pointed(alias, found.version, self._aliases.get(name, {})))

    def promote(self, version: ModelVersion) -> None:
        aliases, noted = self._aliases.get(version.name, {}), self.tags(version).get(REPLACED)
        replaced = taken_over_from(version.version, aliases, noted)
        if replaced is not None:
            self.mark(version, {REPLACED: replaced})
        self._move(version.name, promoted(version.version, aliases, replaced, self._numbers(version.name)))

    def reinstate(self, version: ModelVersion) -> None:
        aliases, replaced = self._aliases.get(version.name, {}), self.tags(version).get(REPLACED)
        self._move(version.name, reinstated(version.version, aliases, replaced, self._numbers(version.name)))

    def _numbers(self, name: str) -> list[str]:
        return [version.version for version in self.versions(name)]

    def _move(self, name: str, moves: Iterable[Move]) -> None:
        aliases = self._aliases.setdefault(name, {})
        for alias, version in moves:
            if version is None:
                del aliases[alias]
            else:
                aliases[alias] = version

    def mark(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        self.marks.setdefault((version.name, version.version), {}).update(tags)

    def tags(self, version: ModelVersion) -> dict[str, str]:
        return dict(self.marks.get((version.name, version.version), {}))

    def source(self, version: ModelVersion) -> str:
        return ""

    def download(self, version: ModelVersion, target: Path) -> Path:
        source, folder = self.folders[version.name, version.version], target / "model"
        difference = compare(version.files, digest_files(source))
        if difference:
            raise DigestMismatch(f"{version.uri}: files differ from those registered: {difference}")
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(source, folder)
        return folder
