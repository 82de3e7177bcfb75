"""Opens MLflow's own client, with its settings, and says in one line what it raises in many.

The client takes a second to load: nothing of it is loaded before MLflow is asked.
"""

from __future__ import annotations

import configparser
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from registry.errors import CHECK, NO_PROXY, TAKES_NOT, RegistryError, StoreRefused, StoreUnreachable, first_line
from tidegate.core.errors import TidegateError, UsageError, without_credentials
from tidegate.core.files import file_lock
from tidegate.core.text import failure_line, redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.store.entities import PagedList

SQLITE = "sqlite:///"
TIMEOUT, RETRIES = "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
"""MLflow's own variables: whole seconds of a request, and how often one is repeated."""
TIMEOUT_SECONDS, MOST_RETRIES = 10, 3
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    TIMEOUT: str(TIMEOUT_SECONDS),
}
LOGGERS = ("mlflow", "alembic", "sqlalchemy")
"""Whose handlers MLflow makes; what they say may quote an address."""
NOT_FOUND, EXISTS, MALFORMED = "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "INVALID_PARAMETER_VALUE"
SECRETS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")
LEAST = 6
"""Characters of a secret that is taken out; a shorter one would be a common word."""
MOST_DETAIL = 2000
MOST_PAGES = 1000
"""Of one list. MLflow gives up to 1000 runs or versions on each."""


Item = TypeVar("Item")


def embedded_uri(state: Path) -> str:
    """The tracking URI of the registry inside the state folder: a SQLite file, artifacts next to it."""
    return f"{SQLITE}{state.absolute() / 'mlflow.db'}"


def limit_calls(seconds: float) -> None:
    """Let each request of stores that are opened from now on take so long, unless the environment says it."""
    os.environ[TIMEOUT] = os.environ.get(TIMEOUT) or str(ceil(seconds))


def load_mlflow() -> None:
    """Import MLflow's client. It reads its settings then, so this sets them first; those that a user has set stay."""
    for name, value in _SETTINGS.items():
        os.environ[name] = os.environ.get(name) or value
    import mlflow  # noqa: F401


def number_in(name: str, default: int) -> int:
    text = os.environ.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # more are no seconds
        raise UsageError(f"{name}: expected a whole number of 0 or more; found {text[:9]!r}")
    return int(text)


def open_client(uri: str) -> MlflowClient:
    """MLflow's own client; makes a SQLite store, and migrates it, on first use (about 3 seconds).

    Raises:
        StoreUnreachable: the store cannot be opened.
    """
    load_mlflow()
    with mlflow_errors(uri):
        from mlflow import MlflowClient

        hide_names()
        if is_server(uri):
            from registry.mlflow_limits import limit_requests

            limit_requests()
        else:
            _make_tables(uri)
        return MlflowClient(uri, registry_uri=uri)


def _make_tables(uri: str) -> None:
    """Of several that open a SQLite store for the first time one makes its tables: two leave a half of each."""
    # What is missing of an extra is told by its name.
    import sqlalchemy  # noqa: F401
    from mlflow import MlflowClient

    lock: AbstractContextManager[object] = nullcontext()
    if uri.startswith(SQLITE):
        file = _file_of(uri)
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            # MLflow tries for 100 seconds to open a file that cannot be opened.
            with closing(sqlite3.connect(file)) as database:
                database.execute("PRAGMA schema_version")
        if os.access(file.parent, os.W_OK):
            lock = file_lock(file.with_name(f"{file.name}.lock"))
    with lock:
        MlflowClient(uri, registry_uri=uri).search_registered_models(max_results=1)


def is_server(uri: str) -> bool:
    """Whether that is the address of an MLflow server, and not a store that MLflow's library opens itself."""
    return urlsplit(uri).scheme in {"http", "https"}


def is_unwritten(uri: str) -> bool:
    return uri.startswith(SQLITE) and not _file_of(uri).exists()


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
        uri = client.tracking_uri
        # Next to a SQLite file; other stores decide for themselves.
        place = (_file_of(uri).absolute().parent / "artifacts").as_uri() if uri.startswith(SQLITE) else None
        # Somebody else may make it meanwhile.
        with refused_by(EXISTS):
            return str(client.create_experiment(name, artifact_location=place))
        found = client.get_experiment_by_name(name)
    if found is None or found.lifecycle_stage != "active":
        raise RegistryError(f"MLflow experiment {name} is deleted", hint="restore it in MLflow, or purge it")
    return str(found.experiment_id)


@contextmanager
def refused_by(*codes: str) -> Iterator[None]:
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


def all_pages(page: Callable[[str | None], PagedList[Item]]) -> Iterator[Item]:
    """The items of all pages of a list; `page` gives the one behind a token."""
    token, seen = None, set[str]()
    while token != "":
        items = page(token)
        yield from items
        token = items.token or ""
        if token in seen or len(seen) >= MOST_PAGES:
            told = f"MLflow lists the same page again, or more than {MOST_PAGES} pages"
            raise StoreUnreachable(told, hint=NO_PROXY)
        seen.add(token)


@contextmanager
def mlflow_errors(uri: str) -> Iterator[None]:
    """Say in one line what MLflow's client raises in many, whatever answers there; details go to `--debug`."""
    try:
        yield
    except (TidegateError, ModuleNotFoundError):
        raise
    # By MLflow's own library, which reads the same file; nothing of it is quoted.
    except configparser.Error:
        raise UsageError("~/.mlflow/credentials: found no INI file", hint="correct the file, or remove it") from None
    except Exception as error:
        raise _said(error, uri) from error


def _said(error: Exception, uri: str) -> StoreUnreachable:
    from mlflow.exceptions import MlflowException
    from urllib3.exceptions import HTTPError

    place, cause = f"MLflow store {redacted(uri)}", _first_cause(error)
    told = isinstance(error, (MlflowException, OSError, ImportError, sqlite3.Error, HTTPError))
    if not told and not type(error).__module__.startswith("sqlalchemy"):
        return StoreUnreachable(f"{place}: its answer cannot be read: {failure_line(error)}", hint=NO_PROXY)
    said = first_line(_without_secrets(str(cause), uri) or type(cause).__name__)
    if is_server(uri):
        from registry.mlflow_limits import what_failed

        if found := what_failed(place, said, cause):
            return found
    if getattr(error, "error_code", "") == MALFORMED:
        return StoreRefused(f"{place}: {said}", hint=TAKES_NOT, code=MALFORMED)
    return StoreUnreachable(f"{place}: {said}", hint=CHECK, detail=_without_secrets(str(error), uri)[:MOST_DETAIL])


def _first_cause(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    inner = error.args[-1] if error.args else None
    return inner if isinstance(inner, BaseException) else error


def _without_secrets(text: str, uri: str) -> str:
    """Also of a header that cannot be sent: a token that ends with its file's line break is quoted whole."""
    for name in SECRETS:
        if len(value := os.environ.get(name, "").strip()) >= LEAST:
            text = text.replace(value, "***")
    return text.replace(uri, redacted(uri))
