"""MLflow in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from pathlib import Path

from registry.errors import StoreRefused
from registry.model import GoldenSet, PendingFiles, StoredRun, StoredVersion


class MemoryStore:
    """A `Store`, whose contract tests run over it and over MLflow.

    Each call takes effect whole and at one moment, which comes after `turn`: the one who interleaves processes says
    there who is next.
    """

    def __init__(self, turn: Callable[[], None] = lambda: None) -> None:
        self.uri = "memory:"
        self.runs: dict[str, StoredRun] = {}
        self.files: dict[str, bytes] = {}
        """By their whole addresses."""
        self.traces: list[tuple[str, Mapping[str, str], int, str, int, object]] = []
        """What was said of them: experiment, tags, when the request began, the assessment's name, time, and value."""
        self._turn = turn
        self._experiments: dict[str, str] = {}
        self._versions: dict[str, dict[str, StoredVersion]] = {}
        self._aliases: dict[str, dict[str, str]] = {}
        self._addresses: dict[str, str] = {}
        self._pending: dict[str, PendingFiles] = {}
        self._ids = itertools.count(1)

    def reached_by(self, turn: Callable[[], None]) -> MemoryStore:
        """The same store, as another process reaches it."""
        other = copy(self)
        other._turn = turn
        return other

    def copied(self) -> MemoryStore:
        """Another store, which begins as this one is."""
        return deepcopy(self)

    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        self._turn()
        made = f"{next(self._ids):032x}"
        self.runs[made] = StoredRun(
            id=made, status="RUNNING", started=started, ended=None, artifacts=f"memory:/runs/{made}",
            tags=dict(tags), params=dict(params),
        )  # fmt: skip
        self._experiments[made] = experiment
        self._turn()
        return self.runs[made]

    def run(self, run: str) -> StoredRun | None:
        self._turn()
        found = self.runs.get(run)
        self._turn()
        return found

    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        self._turn()
        found = [
            run
            for run in self.runs.values()
            if self._experiments[run.id] == experiment
            and tags.items() <= run.tags.items()
            and status in (None, run.status)
            and not run.is_deleted
        ]
        self._turn()
        return sorted(found, key=lambda run: (run.started, run.id), reverse=True)[:last]

    def runs_like(self, beginning: str) -> Sequence[StoredRun]:
        return [run for run in self.runs.values() if run.id.startswith(beginning) and not run.is_deleted]

    def log(self, run: str, tags: Mapping[str, str]) -> None:
        self._turn()
        found = self._open(run)
        self.runs[run] = found.model_copy(update={"tags": {**found.tags, **tags}})
        self._turn()

    def measure(self, run: str, numbers: Mapping[str, float], *, at: int, step: int) -> None:
        self._open(run)

    def claim(self, run: str, key: str, value: str) -> str:
        self._turn()
        found = self._open(run)
        self.runs[run] = found.model_copy(update={"params": {key: value, **found.params}})
        self._turn()
        return self.runs[run].params[key]

    def log_inputs(self, run: str, model: str, golden: GoldenSet | None) -> None:
        self._open(run)

    def end_run(self, run: str, status: str, *, ended: int) -> None:
        self._turn()
        self.runs[run] = self.runs[run].model_copy(update={"status": status, "ended": ended})
        self._turn()

    def delete_run(self, run: str) -> None:
        self._turn()
        self.runs[run] = self.runs[run].model_copy(update={"is_deleted": True})
        self._turn()

    def assessments(
        self, experiment: str, name: str, tags: Mapping[str, str], *, traced: int
    ) -> Sequence[tuple[int, object]] | None:
        if experiment not in {where for where, *_ in self.traces}:
            return None
        return [
            (at, value)
            for where, tagged, began, called, at, value in self.traces
            if (where, called) == (experiment, name) and began >= traced and tags.items() <= tagged.items()
        ]

    def names_like(self, part: str, most: int) -> Sequence[str]:
        return sorted(name for name in self._versions if part.lower() in name.lower())[:most]

    def aliases(self, name: str) -> Mapping[str, str] | None:
        return dict(self._aliases.get(name, {})) if name in self._versions else None

    def version(self, name: str, version: str) -> StoredVersion | None:
        return self._versions.get(name, {}).get(version)

    def versions(self, name: str) -> Sequence[StoredVersion]:
        return list(self._versions.get(name, {}).values())

    def address(self, name: str, version: str) -> str:
        return self._addresses[self._versions[name][version].uri]

    def set_alias(self, name: str, alias: str, version: str | None) -> None:
        aliases = self._aliases.setdefault(name, {})
        if version is None:
            del aliases[alias]
        else:
            aliases[alias] = version

    def tag_version(self, name: str, version: str, tags: Mapping[str, str]) -> None:
        found = self._versions[name][version]
        self._versions[name][version] = found.model_copy(update={"tags": {**found.tags, **tags}})

    def add_version(self, name: str, source: str, *, tags: Mapping[str, str]) -> str:
        versions = self._versions.setdefault(name, {})
        logged = source.removeprefix("models:/")
        made = StoredVersion(name=name, version=str(len(versions) + 1), tags=dict(tags), logged=logged)
        self._addresses[made.uri] = self._pending.pop(logged).address
        versions[made.version] = made
        return made.version

    def begin_files(self, experiment: str, name: str, kind: str) -> PendingFiles:
        made = f"m-{next(self._ids):032x}"
        self._pending[made] = PendingFiles(id=made, address=f"memory:/models/{made}")
        return self._pending[made]

    def abandon_files(self, files: PendingFiles) -> None:
        del self._pending[files.id]

    def listed(self, address: str) -> Mapping[str, int]:
        root = f"{address.rstrip('/')}/"
        return {path[len(root) :]: len(self.files[path]) for path in sorted(self.files) if path.startswith(root)}

    def fetch(self, address: str, path: str, target: Path) -> None:
        place = f"{address.rstrip('/')}/{path}"
        if place not in self.files:
            raise StoreRefused(f"{place}: no such file", hint="look what is there", status=404)
        target.write_bytes(self.files[place])

    def put(self, address: str, path: str, file: Path) -> None:
        self.files[f"{address.rstrip('/')}/{path}"] = file.read_bytes()

    def _open(self, run: str) -> StoredRun:
        found = self.runs[run]
        if found.is_deleted:
            raise StoreRefused(f"run {run} is deleted", hint="restore it")
        return found
