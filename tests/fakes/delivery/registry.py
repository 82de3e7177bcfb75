"""A registry in memory, which keeps the folders it was given, and what a receiver of webhooks needs around it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pipelines.requests import QueuedRequest
from registry.conventions import REPLACED
from registry.errors import DigestMismatch, UnknownAlias, UnknownModel, UnknownVersion
from registry.model import (
    SERVING,
    AdoptionProgress,
    DeliverySummary,
    Event,
    ModelVersion,
    Move,
    ServingAliases,
    pointed,
    promoted,
    reinstated,
    taken_over_from,
)
from registry.model_files import compare, digest_files, read_card, whole_digest
from tidegate.core.errors import OutsideError


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

    def preview(self, name: str, reference: str) -> ModelVersion:
        return self.resolve(name, reference)

    def adopt(
        self, name: str, reference: str, *, folder: str | None = None, progress: AdoptionProgress | None = None
    ) -> ModelVersion:
        """Every version here was registered with its digests."""
        return self.resolve(name, reference)

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

    def promote(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        aliases, noted = self._aliases.get(version.name, {}), self.tags(version).get(REPLACED)
        replaced = taken_over_from(version.version, aliases, noted, names)
        if replaced is not None:
            self.mark(version, {REPLACED: replaced})
        self._move(version.name, promoted(version.version, aliases, replaced, self._numbers(version.name), names))

    def reinstate(self, version: ModelVersion, names: ServingAliases = SERVING) -> None:
        aliases, replaced = self._aliases.get(version.name, {}), self.tags(version).get(REPLACED)
        self._move(version.name, reinstated(version.version, aliases, replaced, self._numbers(version.name), names))

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


class FakeMarks:
    """A registry of one model."""

    def __init__(self, *versions: str) -> None:
        self.versions = frozenset(versions)
        self.means: dict[str, str] = {}
        """The version of each alias."""
        self.reachable = True

    def aliases(self, model: str) -> dict[str, str]:
        if not self.reachable:
            raise OutsideError("MLflow store: no answer")
        return self.means

    def marked(self, model: str, alias: str) -> frozenset[str]:
        if not self.reachable:
            raise OutsideError("MLflow store: no answer")
        return self.versions


class FakeLedgers:
    """Deliveries by id; those without an end are alive."""

    def __init__(self) -> None:
        self.all: dict[str, DeliverySummary] = {}
        self.recorded: dict[str, list[Event]] = {}
        self.asked: list[str] = []
        """Whose events were asked for, each time."""
        self.listed = 0
        """How often all of them were asked for."""
        self.reachable = True

    def deliveries(self, name: str, *, last: int | None = None) -> list[DeliverySummary]:
        self.listed += last is None
        return sorted(self.all.values(), key=lambda each: each.started, reverse=True)[:last]

    def events(self, delivery: str) -> list[Event]:
        self.asked.append(delivery)
        return self.recorded[delivery]

    def is_alive(self, delivery: DeliverySummary) -> bool:
        return delivery.ended is None


class FakeStarter:
    """Notes what it is asked to start; `begin` says what comes of it."""

    def __init__(self, begin: Callable[[QueuedRequest], None] = lambda _: None) -> None:
        self.started: list[str] = []
        self.running = True
        self.able = True
        self._begin = begin

    async def start(self, entry: QueuedRequest) -> str:
        if not self.able:
            raise OutsideError("no room")
        self.started.append(entry.request.version)
        self._begin(entry)
        return f"run {len(self.started)}"

    async def runs(self, entry: QueuedRequest) -> bool:
        return self.running

    def last_words(self, entry: QueuedRequest) -> str:
        return "it is unknown who asks"
