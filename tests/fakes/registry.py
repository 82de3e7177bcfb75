"""A registry in memory, which keeps the folders it was given."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from registry.digests import compare, digest_files, whole_digest
from registry.errors import DigestMismatch, UnknownAlias, UnknownModel, UnknownVersion
from registry.huggingface import read_card
from registry.model import Alias, ModelVersion


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
        self._aliases.setdefault(name, {})[alias] = found.version

    def promote(self, version: ModelVersion) -> None:
        aliases = self._aliases.setdefault(version.name, {})
        champion = aliases.get(Alias.CHAMPION)
        if champion is not None and champion != version.version:
            aliases[Alias.PREVIOUS] = champion
        aliases[Alias.CHAMPION] = version.version
        if aliases.get(Alias.CHALLENGER) == version.version:
            del aliases[Alias.CHALLENGER]

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
