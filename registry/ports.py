"""What the room needs of MLflow, in one Protocol: `registry.mlflow` has it, and `tidegate.testing` one in memory.

Nothing of MLflow is loaded here: that takes a second.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Protocol

from registry.model import GoldenSet, PendingFiles, StoredRun, StoredVersion

SQLITE = "sqlite:///"


def embedded_uri(state: Path) -> str:
    """The tracking URI of the registry inside the state folder: a SQLite file, artifacts next to it."""
    return f"{SQLITE}{state.absolute() / 'mlflow.db'}"


def is_server(uri: str) -> bool:
    """Whether that is the address of an MLflow server, and not a store that MLflow's library opens itself."""
    return uri.lower().startswith(("http://", "https://"))


def limit_calls(seconds: float) -> None:
    """Let each request of stores that are opened from now on take so long, unless the environment says it."""
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT") or str(ceil(seconds))


class Store(Protocol):
    """Runs, versions and files. Each call ends in time; it raises `StoreUnreachable` when MLflow did not do its part.

    Times are in milliseconds since 1970.
    """

    uri: str
    """Its address, which may have a password."""

    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        """A new run in the experiment of that name, which is made when there is none."""

    def run(self, run: str) -> StoredRun | None:
        """As it is now; None when no run has that id."""

    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        """Those with all these tags, and of that status, newest first; none when there is no such experiment."""

    def runs_like(self, beginning: str) -> Sequence[StoredRun]:
        """Those in experiments of ours whose ids begin so."""

    def log(self, run: str, tags: Mapping[str, str]) -> None:
        """Write tags in one request, which is carried out whole or not at all."""

    def measure(self, run: str, numbers: Mapping[str, float], *, at: int, step: int) -> None:
        """Keep numbers as points of the run's time series."""

    def claim(self, run: str, key: str, value: str) -> str:
        """Set a parameter that nobody has set; returns what it is from now on. Of several, the first one sets it."""

    def log_inputs(self, run: str, model: str, golden: GoldenSet | None) -> None:
        """Name the logged model, and the set of prompts, that the run is about."""

    def end_run(self, run: str, status: str, *, ended: int) -> None:
        """Nobody writes to it from now on."""

    def delete_run(self, run: str) -> None:
        """Lists show it no longer."""

    def assessments(
        self, experiment: str, name: str, tags: Mapping[str, str], *, traced: int
    ) -> Sequence[tuple[int, object]] | None:
        """When each assessment of that name was made, and what it says: of the experiment's traces that began since
        `traced` and have all these tags. None when there is no such experiment.
        """

    def names_like(self, part: str, most: int) -> Sequence[str]:
        """Of models that have `part` in their names, sorted; no more than so many, of one page."""

    def aliases(self, name: str) -> Mapping[str, str] | None:
        """The number of the version behind each alias of a model; None when there is no such model."""

    def version(self, name: str, version: str) -> StoredVersion | None:
        """One version; None when there is none."""

    def versions(self, name: str) -> Sequence[StoredVersion]:
        """Every version of a model, oldest first."""

    def address(self, name: str, version: str) -> str:
        """Where the version's files are."""

    def set_alias(self, name: str, alias: str, version: str | None) -> None:
        """Point an alias at a version, wherever it pointed before; None takes it away."""

    def tag_version(self, name: str, version: str, tags: Mapping[str, str]) -> None:
        """Write tags on a version, in this order."""

    def add_version(self, name: str, source: str, *, tags: Mapping[str, str]) -> str:
        """Make files, by `PendingFiles.source`, the next version of the registered model, which is made when there is
        none; returns its number.
        """

    def begin_files(self, experiment: str, name: str, kind: str) -> PendingFiles:
        """A place for the files of a version to come; `kind` is shown with it."""

    def abandon_files(self, files: PendingFiles) -> None:
        """Delete them; `mlflow gc` then takes what was uploaded."""

    def listed(self, address: str) -> Mapping[str, int]:
        """The size in bytes of every file below an address, by its relative path, sorted; none when nothing is there.

        A size is 0 where the store does not say it.
        """

    def fetch(self, address: str, path: str, target: Path) -> None:
        """Write one of these files to `target`, whose folder is there."""

    def put(self, address: str, path: str, file: Path) -> None:
        """Keep a file there, in the place of one that has this path."""
