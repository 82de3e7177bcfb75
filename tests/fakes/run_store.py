"""MLflow's runs in memory: a `RunStore` for deliveries that many processes open and carry on at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from registry.adapters.mlflow_store import Store
from registry.model import Metric, StoredRun


def _at_once() -> None:
    """No time passes between two requests."""


class MemoryRuns:
    """Behaves as MLflow does, which `tests/integration/registry/test_ledger.py` compares.

    Each request takes effect whole and at one moment, which comes after `turn`: whoever interleaves processes says
    there who is next.
    """

    def __init__(self, turn: Callable[[], None] = _at_once) -> None:
        self._turn = turn
        self._runs: dict[str, StoredRun] = {}
        self._experiments: dict[str, str] = {}
        self._ids = itertools.count(1)

    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        self._turn()
        made = f"run-{next(self._ids):04}"
        run = StoredRun(id=made, status="RUNNING", started=started, ended=None, artifacts=name, tags=dict(tags))
        self._runs[made], self._experiments[made] = run, experiment
        self._turn()
        return run

    def run(self, run: str) -> StoredRun | None:
        self._turn()
        found = self._runs.get(run)
        self._turn()
        return found

    def search_runs(self, experiment: str, wanted: str, *, last: int | None = None) -> Sequence[StoredRun]:
        """Of the filter it knows what deliveries ask: a status, or all."""
        self._turn()
        only = "RUNNING" if "attributes.status = 'RUNNING'" in wanted else ""
        found = [
            run
            for run in self._runs.values()
            if self._experiments[run.id] == experiment and (not only or run.status == only)
        ]
        newest = sorted(found, key=lambda run: (run.started, run.id), reverse=True)[:last]
        self._turn()
        return newest

    def log(self, run: str, *, tags: Mapping[str, str] | None = None, metrics: Sequence[Metric] = ()) -> None:
        self._turn()
        found = self._runs[run]
        self._runs[run] = found.model_copy(update={"tags": {**found.tags, **(tags or {})}})
        self._turn()

    def end_run(self, run: str, status: str, *, ended: int) -> None:
        self._turn()
        self._runs[run] = self._runs[run].model_copy(update={"status": status, "ended": ended})
        self._turn()

    def delete_run(self, run: str) -> None:
        self._turn()
        self._runs.pop(run, None)
        self._turn()


class NoFiles:
    """An `ArtifactStore` that takes everything and keeps nothing."""

    def upload(self, run: StoredRun, path: Path, folder: str) -> None: ...

    def files(self, run: StoredRun, folder: str) -> Sequence[str]:
        return ()

    def download(self, run: StoredRun, path: str, target: Path) -> None:
        raise FileNotFoundError(path)

    def download_tree(self, address: str, target: Path) -> Path:
        raise FileNotFoundError(address)


class NoModels:
    """A `ModelStore` that nobody asks."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"a delivery's ledger asked for {name} of model versions")


def memory_store(turn: Callable[[], None] = _at_once) -> Store:
    """A whole store around it."""
    return Store("memory:", MemoryRuns(turn), NoFiles(), NoModels())  # type: ignore[arg-type]
