"""MLflow by its own client, the one way to it: runs, model versions, and files wherever MLflow keeps them.

Each call runs in a thread of its own and ends in time: MLflow's own settings limit a read.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, lru_cache, wraps
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

from registry import mlflow_client as by  # first: it says how MLflow is to be loaded

# isort: split
from mlflow import MlflowClient, entities
from mlflow.entities.model_registry import ModelVersion as MlflowVersion
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from registry.conventions import in_filter
from registry.errors import RegistryError, StoreAway, StoreRefused, StoreUnreachable, UnfitModel, first_line
from registry.model import GoldenSet, PendingFiles, StoredRun, StoredVersion
from registry.ports import SQLITE, is_server
from tidegate.core.errors import TidegateError, UsageError, without_credentials
from tidegate.core.text import redacted
from tidegate.core.threads import call_within

HTTP_NOT_FOUND = 404
PAGE_RUNS = 100
"""Asked for at once at most: a run has all events of its delivery."""
PAGE_TRACES = 500
PAUSE_SECONDS = 1.0
"""Before a call is repeated for the first time; twice as long before each of the next."""
MOST_FILES = 10_000
"""Of a version or a delivery, its folders included."""
OBJECT_STORES = ("s3", "gs", "wasbs")
"""Schemes of addresses that the clients of their providers read; an extra of tidegate brings each."""
LOGGERS = ("boto3", "botocore", "s3transfer", "google", "azure", "msal", "urllib3")
"""That write tokens, keys and signed addresses below a warning."""
CREDENTIALS = (
    "check the address; who asks must list, read and write there; credentials come from a role of the pod or the "
    "machine, or the variables of the provider's own client, such as AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS or "
    "AZURE_STORAGE_CONNECTION_STRING"
)
TOKENS_FOR_ANYBODY = ("abfs", "abfss")
"""Schemes by which MLflow's client would send a token to whatever host an address of somebody's names."""

P = ParamSpec("P")
Answer = TypeVar("Answer")
Method = Callable[Concatenate["MlflowStore", P], Answer]


def _asks(
    *, once: bool = False, files: bool = False, unwritten: Any = ...
) -> Callable[[Method[P, Answer]], Method[P, Answer]]:
    """Let a method of the store end in time, see `MlflowStore.ask`.

    `unwritten` is what it returns of a SQLite file that is not there.
    """

    def bounded(method: Method[P, Answer]) -> Method[P, Answer]:
        @wraps(method)
        def asked(self: MlflowStore, /, *args: P.args, **named: P.kwargs) -> Answer:
            if unwritten is not ... and self.uri.startswith(SQLITE) and not by.file_of(self.uri).exists():
                return unwritten  # type: ignore[no-any-return]
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
        self._request_seconds, self._retries = by.number_in(by.TIMEOUT), by.number_in(by.RETRIES)
        self._seconds = max(60.0, 6.0 * self._request_seconds)
        self._repository = lru_cache(maxsize=16)(self._open)

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's own, to be used within `ask` alone."""
        return by.open_client(self.uri)

    def ask(self, call: Callable[[], Answer], *, once: bool = False, files: bool = False) -> Answer:
        """What the call returns, in time; one that hangs is left behind, and Ctrl-C waits for none.

        Args:
            call: with all requests that it makes. It is repeated after a fault of a server that passes.
            once: it makes another run, model or version each time, and is never repeated.
            files: its time depends on what it moves; a request of it must not stand still.

        Raises:
            StoreUnreachable: in one line what went wrong, without secrets.
        """
        until = time.monotonic() + self._request_seconds

        def asked() -> Answer:
            for attempt in range(0 if once else self._retries):
                pause = PAUSE_SECONDS * 2**attempt
                try:
                    with by.mlflow_errors(self.uri):
                        return call()
                except StoreAway:
                    if not files and time.monotonic() + pause > until:
                        raise
                time.sleep(pause)
            with by.mlflow_errors(self.uri):
                return call()

        # A file answers at once, or is being made.
        seconds = None if files or self.uri.startswith(SQLITE) else self._seconds
        try:
            return call_within(seconds, asked)
        except TimeoutError:
            place = f"MLflow store {redacted(self.uri)}"
            raise StoreUnreachable(f"{place}: no whole answer in {seconds:g} s", hint=by.NO_PROXY) from None

    @_asks(once=True)
    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        number = by.experiment_id(self.client, experiment)
        run = self.client.create_run(number, start_time=started, tags=dict(tags), run_name=name)
        self.client.log_batch(run.info.run_id, params=[entities.Param(*item) for item in params.items()])
        return _to_run(run)

    @_asks(unwritten=None)
    def run(self, run: str) -> StoredRun | None:
        # An id that MLflow would not give is refused in other words.
        with by.refused_by(by.NOT_FOUND, by.MALFORMED):
            return _to_run(self.client.get_run(run))
        return None

    @_asks(unwritten=[])
    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        terms = [f"tags.`{key}` = {in_filter(value)}" for key, value in tags.items()]
        terms += [f"attributes.status = '{status}'"] if status is not None else []
        found = self.client.get_experiment_by_name(experiment)
        return self._runs([found.experiment_id], " and ".join(terms), last) if found else []

    @_asks(unwritten=[])
    def runs_like(self, beginning: str) -> Sequence[StoredRun]:
        search = self.client.search_experiments
        ours = by.all_pages(lambda token: search(filter_string="name LIKE 'tidegate/%'", page_token=token))
        found = [each.experiment_id for each in ours]
        return self._runs(found, f"attributes.run_id LIKE {in_filter(f'{beginning}%')}", None) if found else []

    @_asks()
    def log(self, run: str, tags: Mapping[str, str]) -> None:
        self.client.log_batch(run, tags=[entities.RunTag(*item) for item in tags.items()], synchronous=True)

    @_asks()
    def measure(self, run: str, numbers: Mapping[str, float], *, at: int, step: int) -> None:
        points = [entities.Metric(name, value, at, step) for name, value in numbers.items()]
        self.client.log_batch(run, metrics=points, synchronous=True)

    @_asks()
    def claim(self, run: str, key: str, value: str) -> str:
        try:
            self.client.log_batch(run, params=[entities.Param(key, value)], synchronous=True)
        except MlflowException:
            found: str | None = self.client.get_run(run).data.params.get(key)
            if found is None:
                raise
            return found
        return value

    @_asks()
    def log_inputs(self, run: str, model: str, golden: GoldenSet | None) -> None:
        sets = [entities.Dataset(golden.name, golden.digest[:36], "tidegate", "{}")] if golden else []
        context = [entities.InputTag("mlflow.data.context", "golden set")]
        models = [entities.LoggedModelInput(model)] if model else []
        self.client.log_inputs(run, [entities.DatasetInput(each, context) for each in sets], models)

    @_asks()
    def end_run(self, run: str, status: str, *, ended: int) -> None:
        self.client.set_terminated(run, status, end_time=ended)

    @_asks()
    def delete_run(self, run: str) -> None:
        self.client.delete_run(run)

    @_asks(unwritten=None)
    def assessments(
        self, experiment: str, name: str, tags: Mapping[str, str], *, traced: int
    ) -> Sequence[tuple[int, object]] | None:
        found, search = self.client.get_experiment_by_name(experiment), self.client.search_traces
        if found is None:
            return None
        terms = [f"trace.timestamp_ms >= {traced}", f"feedback.`{name}` IS NOT NULL"]
        wanted = " AND ".join(terms + [f"tag.`{key}` = {in_filter(value)}" for key, value in tags.items()])
        places = [found.experiment_id]
        traces = by.all_pages(
            lambda token: search(
                locations=places, filter_string=wanted, max_results=PAGE_TRACES, page_token=token, include_spans=False
            )
        )
        said = (each for trace in traces for each in trace.info.assessments if each.name == name)
        # One that was corrected is kept, without being valid, besides the one in its place.
        ours = (each for each in said if isinstance(each, entities.Feedback) and each.valid)
        return [(each.create_time_ms or 0, each.value) for each in ours]

    @_asks(unwritten=[])
    def names_like(self, part: str, most: int) -> Sequence[str]:
        wanted = f"name ILIKE {in_filter(f'%{part}%')}" if part else None
        return [model.name for model in self.client.search_registered_models(wanted, most, ["name ASC"])]

    @_asks(unwritten=None)
    def aliases(self, name: str) -> Mapping[str, str] | None:
        with by.refused_by(by.NOT_FOUND):
            found = self.client.get_registered_model(name).aliases
            # Some stores give the number as an integer, others as text.
            return {alias: str(number) for alias, number in found.items()}
        return None

    @_asks()
    def version(self, name: str, version: str) -> StoredVersion | None:
        with by.refused_by(by.NOT_FOUND):
            return _to_version(self.client.get_model_version(name, version))
        return None

    @_asks()
    def versions(self, name: str) -> Sequence[StoredVersion]:
        search, wanted = self.client.search_model_versions, f"name = {in_filter(name)}"
        found = by.all_pages(lambda token: search(wanted, page_token=token))
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
        return run.file(path)

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
    def add_version(self, name: str, source: str, *, tags: Mapping[str, str]) -> str:
        logged = source.removeprefix("models:/")
        self.client.finalize_logged_model(logged, "READY")
        # Every version but the first finds its model there.
        with by.refused_by(by.EXISTS):
            self.client.create_registered_model(name)
        with nullcontext() if is_server(self.uri) else by.as_global_store(self.uri):
            # Only Databricks makes one later than it says.
            made = self.client.create_model_version(
                name, source, tags=dict(tags), await_creation_for=0, model_id=logged
            )
        return str(made.version)

    @_asks(once=True)
    def begin_files(self, experiment: str, name: str, kind: str) -> PendingFiles:
        # A registered model may have a dot in its name, a logged one may not.
        logged_name, number = name.replace(".", "-"), by.experiment_id(self.client, experiment)
        logged = self.client.create_logged_model(number, logged_name, model_type=kind)
        return PendingFiles(id=logged.model_id, address=logged.artifact_location)

    @_asks()
    def abandon_files(self, files: PendingFiles) -> None:
        self.client.delete_logged_model(files.id)

    @_asks(files=True)
    def listed(self, address: str) -> Mapping[str, int]:
        files, folders, named = dict[str, int](), [""], set[str]()
        try:
            with by.mlflow_errors(self.uri), self._there(address) as repository:
                while folders:
                    for file in repository.list_artifacts(folders.pop() or None):
                        if not file.is_dir:
                            _refuse_leading_out(address, file.path)
                            files[file.path] = int(file.file_size or 0)
                        elif file.path not in named:
                            named.add(file.path)
                            folders.append(file.path)
                    if len(files) + len(named) > MOST_FILES:
                        raise RegistryError(
                            f"{address} has more than {MOST_FILES} files and folders",
                            hint="log the version again without the files that it does not need",
                        )
        except StoreRefused as error:
            if error.status != HTTP_NOT_FOUND:
                raise
            return {}
        # A container that is a file system has an empty object in each folder's place.
        return {path: size for path, size in sorted(files.items()) if path not in named}

    @_asks(files=True)
    def fetch(self, address: str, path: str, target: Path) -> None:
        _refuse_leading_out(address, path)
        with self._there(address) as repository:
            # Not `download_artifacts`: its threads would outlive a Ctrl-C.
            repository._download_file(path, str(target))  # type: ignore[no-untyped-call]

    @_asks(files=True)
    def put(self, address: str, path: str, file: Path) -> None:
        folder, _, name = path.rpartition("/")
        with self._there(address) as repository, tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            # MLflow keeps a file under its own name.
            named = Path(made, name)
            named.symlink_to(file.absolute())
            repository.log_artifact(str(named), folder or None)  # type: ignore[no-untyped-call]

    @contextmanager
    def _there(self, address: str) -> Iterator[ArtifactRepository]:
        """What reads and writes there; what the client of an object store raises is said in one line."""
        if urlsplit(address).scheme not in OBJECT_STORES:
            yield self._repository(address)
            return
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        try:
            yield self._repository(address)
        except (TidegateError, ModuleNotFoundError):
            raise
        except Exception as error:
            raise StoreUnreachable(f"{address}: {without_credentials(first_line(error))}", hint=CREDENTIALS) from error

    def _open(self, address: str) -> ArtifactRepository:
        if is_server(self.uri):
            _ = self.client  # limits what servers answer
        scheme, _, place = address.partition("://")
        if scheme in TOKENS_FOR_ANYBODY:
            raise UsageError(
                f"{scheme}://{place.partition('/')[0]}: is not read",
                hint="log it by its other address, wasbs://CONTAINER@ACCOUNT.blob.core.windows.net/FOLDER",
            )
        return get_artifact_repository(address, tracking_uri=self.uri, registry_uri=self.uri)

    def _runs(self, experiments: Sequence[str], wanted: str, last: int | None) -> Sequence[StoredRun]:
        search, most = self.client.search_runs, min(last or PAGE_RUNS, PAGE_RUNS)
        found = by.all_pages(lambda token: search(list(experiments), wanted, max_results=most, page_token=token))
        return [_to_run(run) for run in islice(found, last)]


def _to_run(run: entities.Run) -> StoredRun:
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


def _refuse_leading_out(address: str, path: str) -> None:
    """Any text may be a name in a store, and files are written here by theirs."""
    if {"", ".", ".."} & set(path.split("/")) or "\\" in path:
        raise RegistryError(f"{address} has a file named {path!r}", hint="log the version again with plain file names")
