"""A store as MLflow's own client opens it: a server, a file of this machine, a database.

The client takes a second to load. Nothing of it is loaded before the store is asked.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from registry.adapters.mlflow_address import CHECK, TAKES_NOT, is_server
from registry.adapters.mlflow_calls import all_pages, load_mlflow
from registry.conventions import in_filter, runs_filter
from registry.errors import RegistryError, StoreRefused, StoreUnreachable
from registry.model import NewVersion, StoredMetric, StoredModel, StoredRun, StoredVersion
from tidegate.core.errors import TidegateError, without_credentials
from tidegate.core.files import file_lock
from tidegate.core.text import redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion as MlflowVersion

SQLITE = "sqlite:///"
LOGGERS = ("mlflow", "alembic", "sqlalchemy")
"""Whose handlers MLflow makes; what they say may quote an address."""
NOT_FOUND, EXISTS = "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"
MALFORMED = "INVALID_PARAMETER_VALUE"
HTTP_BAD_REQUEST = 400
SECRETS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")
LEAST = 6
"""Characters of a secret that is taken out; a shorter one would be a common word."""
MOST_DETAIL = 2000
PAGE_RUNS = 100
"""Asked for at once at most: a run has all events of its delivery."""


class LibraryStore:
    """A `RunStore` and a `ModelStore`, by one client that is opened when it is first asked.

    A SQLite file that is not there is a store without entries: reading makes none.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri

    @cached_property
    def _client(self) -> MlflowClient:
        return open_client(self._uri)

    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        with store_errors(self._uri):
            from mlflow.entities import Param

            number = experiment_id(self._client, experiment)
            run = self._client.create_run(number, start_time=started, tags=dict(tags), run_name=name)
            self._client.log_batch(run.info.run_id, params=[Param(*item) for item in params.items()])
            return _to_run(run)

    def run(self, run: str) -> StoredRun | None:
        if _is_unwritten(self._uri):
            return None
        with store_errors(self._uri):
            # An id that MLflow would not give is refused in other words.
            with _refused_by(NOT_FOUND, MALFORMED):
                return _to_run(self._client.get_run(run))
            return None

    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        if _is_unwritten(self._uri):
            return []
        with store_errors(self._uri):
            found = self._client.get_experiment_by_name(experiment)
            if found is None:
                return []
            wanted, most = runs_filter(tags, status), min(last or PAGE_RUNS, PAGE_RUNS)

            def page(token: str | None) -> tuple[Sequence[Run], str]:
                runs = self._client.search_runs([found.experiment_id], wanted, max_results=most, page_token=token)
                return runs, runs.token or ""

            return [_to_run(run) for run in islice(all_pages(page), last)]

    def log(self, run: str, *, tags: Mapping[str, str] | None = None, metrics: Sequence[StoredMetric] = ()) -> None:
        with store_errors(self._uri):
            from mlflow.entities import Metric as Point
            from mlflow.entities import RunTag

            entries = [RunTag(key, value) for key, value in (tags or {}).items()]
            points = [Point(each.name, each.value, each.at, each.step) for each in metrics]
            self._client.log_batch(run, tags=entries, metrics=points, synchronous=True)

    def end_run(self, run: str, status: str, *, ended: int) -> None:
        with store_errors(self._uri):
            self._client.set_terminated(run, status, end_time=ended)

    def delete_run(self, run: str) -> None:
        with store_errors(self._uri):
            self._client.delete_run(run)

    def names_like(self, part: str, most: int) -> Sequence[str]:
        if _is_unwritten(self._uri):
            return []
        with store_errors(self._uri):
            wanted = f"name ILIKE {in_filter(f'%{part}%')}" if part else None
            return [model.name for model in self._client.search_registered_models(wanted, most, ["name ASC"])]

    def model(self, name: str) -> StoredModel | None:
        if _is_unwritten(self._uri):
            return None
        with store_errors(self._uri):
            with _refused_by(NOT_FOUND):
                aliases = self._client.get_registered_model(name).aliases
                # Some stores give the number as an integer, others as text.
                return StoredModel(name=name, aliases={alias: str(number) for alias, number in aliases.items()})
            return None

    def version(self, name: str, version: str) -> StoredVersion | None:
        with store_errors(self._uri):
            with _refused_by(NOT_FOUND):
                return _to_version(self._client.get_model_version(name, version))
            return None

    def versions(self, name: str) -> Sequence[StoredVersion]:
        found = map(_to_version, self._listed(name))
        return sorted(found, key=lambda version: int(version.version))

    def set_alias(self, name: str, alias: str, version: str | None) -> None:
        with store_errors(self._uri):
            if version is None:
                self._client.delete_registered_model_alias(name, alias)
            else:
                self._client.set_registered_model_alias(name, alias, version)

    def tag_version(self, name: str, version: str, tags: Mapping[str, str | None]) -> None:
        with store_errors(self._uri):
            for key, value in tags.items():
                if value is None:
                    self._client.delete_model_version_tag(name, version, key)
                else:
                    self._client.set_model_version_tag(name, version, key, value)

    def add_version(self, new: NewVersion) -> str:
        with store_errors(self._uri):
            return create_version(self._client, new)

    def address(self, name: str, version: str) -> str:
        with store_errors(self._uri):
            return str(self._client.get_model_version_download_uri(name, version))

    def _listed(self, name: str) -> Sequence[MlflowVersion]:
        def page(token: str | None) -> tuple[Sequence[MlflowVersion], str]:
            versions = self._client.search_model_versions(f"name = {in_filter(name)}", page_token=token)
            return versions, versions.token or ""

        with store_errors(self._uri):
            return list(all_pages(page))


def open_client(tracking_uri: str) -> MlflowClient:
    """MLflow's own client of that store; makes a SQLite store, and migrates it, on first use (about 3 seconds).

    Raises:
        StoreUnreachable: the store cannot be opened.
    """
    if tracking_uri.startswith(SQLITE):
        _make_parent(tracking_uri)
    with store_errors(tracking_uri), _alone(tracking_uri):
        _require_database(tracking_uri)
        from mlflow import MlflowClient

        hide_names()
        client = MlflowClient(tracking_uri, registry_uri=tracking_uri)
        if is_server(tracking_uri):
            from registry.adapters.mlflow_requests import limit_requests

            limit_requests()
        else:
            client.search_registered_models(max_results=1)
    return client


def _alone(tracking_uri: str) -> AbstractContextManager[None]:
    """Of several that open a SQLite store for the first time one makes its tables: two leave a half of each."""
    if not tracking_uri.startswith(SQLITE) or not os.access(_file_of(tracking_uri).parent, os.W_OK):
        return nullcontext()
    path = _file_of(tracking_uri)
    return file_lock(path.with_name(f"{path.name}.lock"))


def _require_database(tracking_uri: str) -> None:
    """MLflow tries for 100 seconds to open a file that cannot be opened."""
    if not tracking_uri.startswith(SQLITE) or _is_unwritten(tracking_uri):
        return
    try:
        with closing(sqlite3.connect(_file_of(tracking_uri))) as database:
            database.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise OSError(f"{_file_of(tracking_uri)}: {error}") from error


def _is_unwritten(tracking_uri: str) -> bool:
    return tracking_uri.startswith(SQLITE) and not _file_of(tracking_uri).exists()


def _file_of(sqlite_uri: str) -> Path:
    return Path(sqlite_uri.removeprefix(SQLITE).partition("?")[0])


def hide_names() -> None:
    """Let no log line of the library, or of what it opens stores with, hold a name and password of an address."""
    for handler in {handler for name in LOGGERS for handler in logging.getLogger(name).handlers}:
        if _without_names not in handler.filters:
            handler.addFilter(_without_names)


def _without_names(record: logging.LogRecord) -> bool:
    record.msg, record.args = without_credentials(record.getMessage()), None
    return True


def experiment_id(client: MlflowClient, name: str) -> str:
    """The id of the experiment with that name, made when there is none yet."""
    found = client.get_experiment_by_name(name)
    if found is None:
        # Somebody else may make it meanwhile.
        with _refused_by(EXISTS):
            return str(client.create_experiment(name, artifact_location=_own_location(client.tracking_uri)))
        found = client.get_experiment_by_name(name)
    if found is None or found.lifecycle_stage != "active":
        raise RegistryError(f"MLflow experiment {name} is deleted", hint="restore it in MLflow, or purge it")
    return str(found.experiment_id)


def create_version(client: MlflowClient, new: NewVersion) -> str:
    """The next version of a registered model, which is made when there is none; returns its number."""
    # Every version but the first finds its model there.
    with _refused_by(EXISTS):
        client.create_registered_model(new.name)
    with nullcontext() if is_server(client.tracking_uri) else as_global_store(client.tracking_uri):
        made = client.create_model_version(
            new.name,
            new.source,
            run_id=new.run or None,
            tags=dict(new.tags),
            description=new.description,
            model_id=new.logged or None,
            # Only Databricks makes one later than it says.
            await_creation_for=0,
        )
    return str(made.version)


@contextmanager
def _refused_by(*codes: str) -> Iterator[None]:
    """Go on behind the block when MLflow refuses it by one of these names of errors."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code not in codes:
            raise


@contextmanager
def as_global_store(tracking_uri: str) -> Iterator[None]:
    """Make this store MLflow's global one for a moment.

    MLflow's SQL registry looks up the logged model behind a new version through the global client, whatever
    store the version is made in.
    """
    import mlflow

    chosen = mlflow.is_tracking_uri_set()  # type: ignore[no-untyped-call]
    before = mlflow.get_tracking_uri() if chosen else None
    mlflow.set_tracking_uri(tracking_uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None means: as if never set


@contextmanager
def store_errors(tracking_uri: str) -> Iterator[None]:
    """Say in one line that the store did not answer, whatever MLflow raised; details go to `--debug`."""
    load_mlflow()
    from mlflow.exceptions import MlflowException

    if not is_server(tracking_uri):
        # What is missing of an extra is told by its name.
        import sqlalchemy  # noqa: F401

    handled = sys.exc_info()[1]
    try:
        yield
    except Exception as error:
        ours = isinstance(error, (MlflowException, OSError, ImportError))
        if isinstance(error, TidegateError) or not (ours or type(error).__module__.startswith("sqlalchemy")):
            raise
        raise _said(error, _first_cause(error, handled), tracking_uri) from error


def _said(error: Exception, cause: BaseException, uri: str) -> StoreUnreachable:
    """In one line what MLflow's client raises in many; nothing in it is secret."""
    place = f"MLflow store {redacted(uri)}"
    said = (_without_secrets(str(cause), uri).splitlines() or [type(cause).__name__])[0][:200]
    if is_server(uri):
        from registry.adapters.mlflow_requests import what_failed

        if found := what_failed(place, said, cause):
            return found
    if getattr(error, "error_code", "") == MALFORMED:
        return StoreRefused(f"{place}: {said}", hint=TAKES_NOT, code=MALFORMED, status=HTTP_BAD_REQUEST)
    return StoreUnreachable(f"{place}: {said}", hint=CHECK, detail=_without_secrets(str(error), uri)[:MOST_DETAIL])


def _first_cause(error: BaseException, handled: BaseException | None) -> BaseException:
    """What led to an error, apart from what its caller was handling."""
    while (cause := error.__cause__ or error.__context__) not in (None, handled):
        error = cause
    inner = error.args[-1] if error.args else None
    return inner if isinstance(inner, BaseException) else error


def _without_secrets(text: str, uri: str) -> str:
    """Also of a header that cannot be sent: a token that ends with its file's line break is quoted whole."""
    for name in SECRETS:
        if len(value := os.environ.get(name, "").strip()) >= LEAST:
            text = text.replace(value, "***")
    return text.replace(uri, redacted(uri))


def _to_run(run: Run) -> StoredRun:
    return StoredRun(
        id=run.info.run_id,
        status=run.info.status,
        started=run.info.start_time,
        ended=run.info.end_time or None,
        artifacts=run.info.artifact_uri or "",
        tags=dict(run.data.tags),
        is_deleted=run.info.lifecycle_stage == "deleted",
    )


def _to_version(found: MlflowVersion) -> StoredVersion:
    return StoredVersion(name=found.name, version=str(found.version), tags=dict(found.tags))


def _make_parent(tracking_uri: str) -> None:
    folder = _file_of(tracking_uri).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnreachable(
            f"MLflow store {redacted(tracking_uri)}: cannot make {folder}: {error.strerror}",
            hint="make the folder writable, or name another store with --tracking-uri",
        ) from error


def _own_location(tracking_uri: str) -> str | None:
    """Next to a SQLite file; other stores decide for themselves."""
    if not tracking_uri.startswith(SQLITE):
        return None
    return (_file_of(tracking_uri).absolute().parent / "artifacts").as_uri()
