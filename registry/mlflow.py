"""MLflow by its own client, the one way to it: runs, model versions, files.

Each call runs in a thread of its own and ends in time: MLflow's own settings limit a read.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, lru_cache, wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

from registry.conventions import in_filter, runs_filter
from registry.errors import NO_PROXY, StoreAway, StoreRefused, StoreUnreachable, UnfitModel
from registry.mlflow_client import (
    EXISTS,
    MALFORMED,
    MOST_RETRIES,
    NOT_FOUND,
    RETRIES,
    SQLITE,
    TIMEOUT,
    TIMEOUT_SECONDS,
    all_pages,
    as_global_store,
    experiment_id,
    is_server,
    is_unwritten,
    load_mlflow,
    mlflow_errors,
    number_in,
    open_client,
    refused_by,
)
from registry.mlflow_files import blob_address, listed_in, provider_errors, refuse_leading_out
from registry.model import GoldenSet, Metric, PendingFiles, StoredRun, StoredVersion
from tidegate.core.text import redacted
from tidegate.core.threads import call_within

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.entities.model_registry import ModelVersion as MlflowVersion
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

HTTP_NOT_FOUND = 404
PAGE_RUNS = 100
"""Asked for at once at most: a run has all events of its delivery."""
PAUSE_SECONDS = 1.0
"""Before a call is repeated for the first time; twice as long before each of the next."""

P = ParamSpec("P")
Answer = TypeVar("Answer")
Method = Callable[Concatenate["MlflowStore", P], Answer]


def _asks(*, once: bool = False, files: bool = False) -> Callable[[Method[P, Answer]], Method[P, Answer]]:
    """Let a method of the store end in time; see `MlflowStore.ask`."""

    def bounded(method: Method[P, Answer]) -> Method[P, Answer]:
        @wraps(method)
        def asked(self: MlflowStore, /, *args: P.args, **named: P.kwargs) -> Answer:
            return self.ask(lambda: method(self, *args, **named), once=once, files=files)

        return asked

    return bounded


class MlflowStore:
    """A `Store`, by one client that is opened when it is first asked.

    A SQLite file that is not there is a store without entries: reading makes none.
    """

    def __init__(self, uri: str) -> None:
        """Nobody is asked yet.

        Raises:
            UsageError: a variable of MLflow's client holds no number.
        """
        self.uri = uri
        self._request_seconds = number_in(TIMEOUT, TIMEOUT_SECONDS)
        self._seconds = max(60.0, 6.0 * self._request_seconds)
        self._retries = number_in(RETRIES, MOST_RETRIES)
        self._opened = lru_cache(maxsize=16)(self._open)

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's own, to be used within `ask` alone."""
        return open_client(self.uri)

    def ask(self, call: Callable[[], Answer], *, once: bool = False, files: bool = False) -> Answer:
        """What the call returns, in time; one that hangs is left behind, and Ctrl-C waits for none.

        Args:
            call: with all requests that it makes. It is repeated after a fault of a server that passes.
            once: it makes another run, model or version each time, and is never repeated.
            files: its time depends on what it moves; a request of it must not stand still.

        Raises:
            StoreUnreachable: in one line what went wrong, without secrets.
        """
        # The time that a busy machine needs for it is not the store's.
        load_mlflow()
        until = time.monotonic() + self._request_seconds

        def asked() -> Answer:
            for attempt in range(0 if once else self._retries):
                pause = PAUSE_SECONDS * 2**attempt
                try:
                    with mlflow_errors(self.uri):
                        return call()
                except StoreAway:
                    if not files and time.monotonic() + pause > until:
                        raise
                time.sleep(pause)
            with mlflow_errors(self.uri):
                return call()

        # A file answers at once, or is being made.
        seconds = None if files or self.uri.startswith(SQLITE) else self._seconds
        try:
            return call_within(seconds, asked)
        except TimeoutError:
            place = f"MLflow store {redacted(self.uri)}"
            raise StoreUnreachable(f"{place}: no whole answer in {seconds:g} s", hint=NO_PROXY) from None

    @_asks(once=True)
    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        from mlflow.entities import Param

        number = experiment_id(self.client, experiment)
        run = self.client.create_run(number, start_time=started, tags=dict(tags), run_name=name)
        self.client.log_batch(run.info.run_id, params=[Param(*item) for item in params.items()])
        return _to_run(run)

    @_asks()
    def run(self, run: str) -> StoredRun | None:
        if is_unwritten(self.uri):
            return None
        # An id that MLflow would not give is refused in other words.
        with refused_by(NOT_FOUND, MALFORMED):
            return _to_run(self.client.get_run(run))
        return None

    @_asks()
    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        if is_unwritten(self.uri) or not (found := self.client.get_experiment_by_name(experiment)):
            return []
        return self._runs([found.experiment_id], runs_filter(tags, status), last)

    @_asks()
    def runs_like(self, beginning: str) -> Sequence[StoredRun]:
        if is_unwritten(self.uri):
            return []
        search = self.client.search_experiments
        ours = all_pages(lambda token: search(filter_string="name LIKE 'tidegate/%'", page_token=token))
        found = [each.experiment_id for each in ours]
        return self._runs(found, f"attributes.run_id LIKE {in_filter(f'{beginning}%')}", None) if found else []

    @_asks()
    def log(self, run: str, *, tags: Mapping[str, str] | None = None, metrics: Sequence[Metric] = ()) -> None:
        from mlflow.entities import Metric as Point
        from mlflow.entities import RunTag

        entries = [RunTag(key, value) for key, value in (tags or {}).items()]
        points = [Point(each.name, each.value, each.at, each.step) for each in metrics]
        self.client.log_batch(run, tags=entries, metrics=points, synchronous=True)

    @_asks()
    def claim(self, run: str, key: str, value: str) -> str:
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        try:
            self.client.log_batch(run, params=[Param(key, value)], synchronous=True)
        except MlflowException:
            found: str | None = self.client.get_run(run).data.params.get(key)
            if found is None:
                raise
            return found
        return value

    @_asks()
    def log_inputs(self, run: str, model: str, golden: GoldenSet | None) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput

        sets = [Dataset(golden.name, golden.digest[:36], "tidegate", "{}")] if golden else []
        shown = [DatasetInput(each, [InputTag("mlflow.data.context", "golden set")]) for each in sets]
        self.client.log_inputs(run, shown, [LoggedModelInput(model)] if model else [])

    @_asks()
    def end_run(self, run: str, status: str, *, ended: int) -> None:
        self.client.set_terminated(run, status, end_time=ended)

    @_asks()
    def delete_run(self, run: str) -> None:
        self.client.delete_run(run)

    @_asks()
    def names_like(self, part: str, most: int) -> Sequence[str]:
        if is_unwritten(self.uri):
            return []
        wanted = f"name ILIKE {in_filter(f'%{part}%')}" if part else None
        return [model.name for model in self.client.search_registered_models(wanted, most, ["name ASC"])]

    @_asks()
    def aliases(self, name: str) -> Mapping[str, str] | None:
        if not is_unwritten(self.uri):
            with refused_by(NOT_FOUND):
                found = self.client.get_registered_model(name).aliases
                # Some stores give the number as an integer, others as text.
                return {alias: str(number) for alias, number in found.items()}
        return None

    @_asks()
    def version(self, name: str, version: str) -> StoredVersion | None:
        with refused_by(NOT_FOUND):
            return _to_version(self.client.get_model_version(name, version))
        return None

    @_asks()
    def versions(self, name: str) -> Sequence[StoredVersion]:
        search, wanted = self.client.search_model_versions, f"name = {in_filter(name)}"
        found = all_pages(lambda token: search(wanted, page_token=token))
        return sorted(map(_to_version, found), key=lambda version: int(version.version))

    @_asks()
    def address(self, name: str, version: str) -> str:
        address = str(self.client.get_model_version_download_uri(name, version))
        parts = urlsplit(address)
        if parts.scheme != "runs":
            return address
        number, _, path = (parts.netloc + parts.path).strip("/").partition("/")
        run = self.run(number)
        if run is None:
            raise UnfitModel(
                f"models:/{name}/{version}: run {number} logged its files, and is not in {redacted(self.uri)}",
                hint="check the tracking URI: MLFLOW_TRACKING_URI",
            )
        return f"{run.artifacts.rstrip('/')}/{path}".rstrip("/")

    @_asks()
    def set_alias(self, name: str, alias: str, version: str | None) -> None:
        if version is None:
            self.client.delete_registered_model_alias(name, alias)
        else:
            self.client.set_registered_model_alias(name, alias, version)

    @_asks()
    def tag_version(self, name: str, version: str, tags: Mapping[str, str]) -> None:
        for key, value in tags.items():
            self.client.set_model_version_tag(name, version, key, value)

    @_asks(once=True)
    def add_version(self, name: str, source: str, *, tags: Mapping[str, str], description: str | None = None) -> str:
        kind, _, path = source.partition(":/")
        known = {"run_id" if kind == "runs" else "model_id": path.partition("/")[0]}
        if kind == "models":
            self.client.finalize_logged_model(path, "READY")
        # Every version but the first finds its model there.
        with refused_by(EXISTS):
            self.client.create_registered_model(name)
        with nullcontext() if is_server(self.uri) else as_global_store(self.uri):
            # Only Databricks makes one later than it says.
            made = self.client.create_model_version(
                name, source, tags=dict(tags), description=description, await_creation_for=0, **known
            )
        return str(made.version)

    @_asks(once=True)
    def begin_files(self, experiment: str, name: str, kind: str, tags: Mapping[str, str]) -> PendingFiles:
        # A registered model may have a dot in its name, a logged one may not.
        logged_name, number = name.replace(".", "-"), experiment_id(self.client, experiment)
        return _to_files(self.client.create_logged_model(number, logged_name, tags=dict(tags), model_type=kind))

    @_asks()
    def pending_files(self, experiment: str) -> Sequence[PendingFiles]:
        if is_unwritten(self.uri) or not (found := self.client.get_experiment_by_name(experiment)):
            return []
        newest = [{"field_name": "creation_time", "ascending": False}]
        logged = self.client.search_logged_models([found.experiment_id], max_results=PAGE_RUNS, order_by=newest)
        return [_to_files(each) for each in logged if str(each.status) == "PENDING"]

    @_asks()
    def abandon_files(self, files: PendingFiles) -> None:
        self.client.delete_logged_model(files.id)

    @_asks(files=True)
    def listed(self, address: str) -> Mapping[str, int]:
        try:
            with mlflow_errors(self.uri), provider_errors(address):
                return listed_in(self._opened(address), address)
        except StoreRefused as error:
            if error.status != HTTP_NOT_FOUND:
                raise
            return {}

    @_asks(files=True)
    def fetch(self, address: str, path: str, target: Path) -> None:
        refuse_leading_out(address, path)
        with provider_errors(address):
            # Not `download_artifacts`: its threads would outlive a Ctrl-C.
            self._opened(address)._download_file(path, str(target))  # type: ignore[no-untyped-call]

    @_asks(files=True)
    def put(self, address: str, path: str, file: Path) -> None:
        folder, _, name = path.rpartition("/")
        with provider_errors(address), tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            # MLflow keeps a file under its own name.
            named = Path(made, name)
            named.symlink_to(file.absolute())
            self._opened(address).log_artifact(str(named), folder or None)  # type: ignore[no-untyped-call]

    def _open(self, address: str) -> ArtifactRepository:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        if is_server(self.uri):
            _ = self.client  # limits what servers answer
        return get_artifact_repository(blob_address(address), tracking_uri=self.uri, registry_uri=self.uri)

    def _runs(self, experiments: Sequence[str], wanted: str, last: int | None) -> Sequence[StoredRun]:
        most = min(last or PAGE_RUNS, PAGE_RUNS)
        found = all_pages(
            lambda token: self.client.search_runs(list(experiments), wanted, max_results=most, page_token=token)
        )
        return [_to_run(run) for run in islice(found, last)]


def _to_run(run: Run) -> StoredRun:
    return StoredRun(
        id=run.info.run_id,
        status=run.info.status,
        started=run.info.start_time,
        ended=run.info.end_time or None,
        artifacts=run.info.artifact_uri or "",
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        is_deleted=run.info.lifecycle_stage == "deleted",
    )


def _to_version(found: MlflowVersion) -> StoredVersion:
    # MLflow does not say the logged model besides.
    _, of_model, logged = (found.source or "").rpartition("models:/")
    known = {"run": found.run_id or "", "logged": logged if of_model and "/" not in logged else ""}
    return StoredVersion(name=found.name, version=str(found.version), tags=dict(found.tags), **known)


def _to_files(logged: LoggedModel) -> PendingFiles:
    return PendingFiles(id=logged.model_id, address=logged.artifact_location, tags=dict(logged.tags or {}))


def now_ms() -> int:
    """Milliseconds since 1970, as MLflow has them."""
    return int(time.time() * 1000)
