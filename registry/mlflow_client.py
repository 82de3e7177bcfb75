"""MLflow's own client: its settings, an end of every answer in time and in size, and one line for what it raises.

It takes a second to load, and reads its settings then.
"""

# ruff: noqa: E402

from __future__ import annotations

import configparser
import logging
import os
import sqlite3
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from http.client import HTTPException
from pathlib import Path
from threading import local
from typing import Any, TypeVar

TIMEOUT, RETRIES = "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
"""MLflow's own variables: whole seconds of a request, and how often one is repeated."""
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    TIMEOUT: "10",
    RETRIES: "3",
}
"""Those that a user has set stay."""
os.environ |= {name: os.environ.get(name) or value for name, value in SETTINGS.items()}

import mlflow
import urllib3
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList
from mlflow.utils import request_utils
from requests import PreparedRequest, Response
from urllib3.exceptions import HTTPError, InsecureRequestWarning
from urllib3.response import BaseHTTPResponse

from registry.errors import RegistryError, StoreAway, StoreRefused, StoreUnreachable, first_line
from registry.ports import SQLITE, is_server
from tidegate.core.access import scrubbed
from tidegate.core.errors import TidegateError, UsageError, without_credentials
from tidegate.core.files import file_lock
from tidegate.core.text import failure_line, json_of, redacted

LOGGERS = ("mlflow", "alembic", "sqlalchemy")
"""Whose handlers MLflow makes; what they say may quote an address."""
NOT_FOUND, EXISTS, MALFORMED = "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "INVALID_PARAMETER_VALUE"
SECRETS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")
MOST_DETAIL = 2000
MOST_PAGES = 1000
"""Of one list. MLflow gives up to 1000 runs or versions on each."""
PASSING = request_utils._TRANSIENT_FAILURE_RESPONSE_CODES
"""Statuses of faults that pass."""
CHECK = "check the tracking URI and that the store is running"
NO_PROXY = "check the tracking URI, and that MLflow answers there and no proxy"
TAKES_NOT = "MLflow answers, and takes no such value: change what the message names"
HINTS = {
    400: TAKES_NOT,
    401: "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
    403: "MLflow does not let this user do it",
}
"""What to do about each status."""
TLS = (
    "MLFLOW_TRACKING_SERVER_CERT_PATH names a file of authorities, MLFLOW_TRACKING_CLIENT_CERT_PATH one with "
    "certificate and key"
)
TRANSFER_SECONDS = 120.0
"""Of silence in the middle of a file: a store may take its time to put it away."""
PART_BYTES = 1 << 20
MOST_BYTES = 64 << 20
"""Of an answer that is no file: a thousand deliveries with all their events have 40 MB."""
SLOWEST_BYTES = 10_000
"""A second: what comes slower counts as a connection that stands still."""

Item = TypeVar("Item")
_asked = local()


def number_in(name: str) -> int:
    """What a variable of MLflow's client says."""
    text = os.environ.get(name) or SETTINGS[name]
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # more are no seconds
        raise UsageError(f"{name}: expected a whole number of 0 or more; found {text[:9]!r}")
    return int(text)


def open_client(uri: str) -> MlflowClient:
    """MLflow's own client; makes a SQLite store, and migrates it, on first use (about 3 seconds).

    Raises:
        StoreUnreachable: the store cannot be opened.
    """
    with mlflow_errors(uri):
        # What the library logs, and what it opens stores with, may hold a name and password of an address.
        for handler in {handler for name in LOGGERS for handler in logging.getLogger(name).handlers}:
            if _without_names not in handler.filters:
                handler.addFilter(_without_names)
        if is_server(uri):
            request_utils.TCPKeepAliveHTTPAdapter = Adapter  # type: ignore[misc]
            logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
            urllib3.disable_warnings(InsecureRequestWarning)
        else:
            _make_tables(uri)
        return MlflowClient(uri, registry_uri=uri)


def _make_tables(uri: str) -> None:
    """Of several that open a SQLite store for the first time one makes its tables: two leave a half of each."""
    import sqlalchemy  # noqa: F401  # what is missing of an extra is told by its name

    lock: AbstractContextManager[object] = nullcontext()
    if uri.startswith(SQLITE):
        file = file_of(uri)
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            # MLflow tries for 100 seconds to open a file that cannot be opened.
            with closing(sqlite3.connect(file)) as database:
                database.execute("PRAGMA schema_version")
        if os.access(file.parent, os.W_OK):
            lock = file_lock(file.with_name(f"{file.name}.lock"))
    with lock:
        MlflowClient(uri, registry_uri=uri).search_registered_models(max_results=1)


def file_of(sqlite_uri: str) -> Path:
    """Where a SQLite store is."""
    return Path(sqlite_uri.removeprefix(SQLITE).partition("?")[0])


def _without_names(record: logging.LogRecord) -> bool:
    record.msg, record.args = without_credentials(record.getMessage()), None
    return True


class Adapter(request_utils.TCPKeepAliveHTTPAdapter):
    """What MLflow's client asks servers by, looked up in one of its modules. It reads no answer without an end.

    It repeats nothing: what may be sent again is known to `registry.mlflow`.
    """

    def send(  # type: ignore[override]  # MLflow gives one number
        self, request: PreparedRequest, stream: bool = False, timeout: float = 0, **named: Any
    ) -> Response:
        seconds = float(number_in(TIMEOUT))
        if stream or request.method == "PUT":
            seconds = max(seconds, TRANSFER_SECONDS)
        _asked.last, self.max_retries = None, urllib3.Retry(0, read=False)
        answer: Response = super().send(request, stream=stream, timeout=(timeout, seconds), **named)
        most = None if stream else MOST_BYTES
        # What `requests` reads a body by, all at once and in parts.
        answer.iter_content = lambda *_, **__: _parts(answer.raw, most, seconds)  # type: ignore[method-assign]
        _asked.last = answer
        return answer


class UnboundedAnswer(OSError):
    """What answers does not come to an end in time, or in size."""


def _parts(body: BaseHTTPResponse, most: int | None, seconds: float) -> Iterator[bytes]:
    begun, size = time.monotonic(), 0
    while part := body.read1(PART_BYTES, decode_content=True):
        size += len(part)
        if most is not None and size > most:
            body.close()
            raise UnboundedAnswer(f"it answers with more than {most >> 20} MB")
        # A time limit of a library is of one read: a byte a second never ends.
        if time.monotonic() - begun > seconds + size / SLOWEST_BYTES:
            body.close()
            raise UnboundedAnswer(f"its answer comes too slowly, {size} bytes in {seconds:g} s or more")
        yield part


def experiment_id(client: MlflowClient, name: str) -> str:
    """The id of the experiment with that name, made when there is none yet."""
    found = client.get_experiment_by_name(name)
    if found is None:
        uri = client.tracking_uri
        # Next to a SQLite file; other stores decide for themselves.
        place = (file_of(uri).absolute().parent / "artifacts").as_uri() if uri.startswith(SQLITE) else None
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
    place, cause = f"MLflow store {redacted(uri)}", _first_cause(error)
    told = isinstance(error, (MlflowException, OSError, ImportError, sqlite3.Error, HTTPError))
    if not told and not type(error).__module__.startswith("sqlalchemy"):
        return StoreUnreachable(f"{place}: its answer cannot be read: {failure_line(error)}", hint=NO_PROXY)
    said = first_line(_without_secrets(str(cause), uri) or type(cause).__name__)
    if isinstance(cause, UnboundedAnswer):
        return StoreUnreachable(f"{place}: {said}", hint=CHECK)
    if is_server(uri) and (found := _unanswered(place, said, cause)):
        return found
    if getattr(error, "error_code", "") == MALFORMED:
        return StoreRefused(f"{place}: {said}", hint=TAKES_NOT, code=MALFORMED)
    return StoreUnreachable(f"{place}: {said}", hint=CHECK, detail=_without_secrets(str(error), uri)[:MOST_DETAIL])


def _unanswered(place: str, said: str, cause: BaseException) -> StoreUnreachable | None:
    """What became of the last request of this thread; None when it was answered."""
    answer: Response | None = getattr(_asked, "last", None)
    if answer is None:
        kind = StoreUnreachable if isinstance(cause, ssl.SSLError) else StoreAway
        return kind(f"{place}: no answer ({said})", hint=TLS if place.startswith("MLflow store https:") else CHECK)
    if answer.ok:
        broke_off = isinstance(cause, (HTTPError, HTTPException))
        return StoreAway(f"{place}: its answer broke off ({said})", hint=CHECK) if broke_off else None
    # MLflow's own errors do not keep the status.
    told, code = answer.text, ""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        content = json_of(answer.content)
        told, code = str(content["message"]), str(content.get("error_code", ""))
    told = f"{place}: answered {answer.status_code}: {first_line(told)}"
    if answer.status_code in PASSING:
        return StoreAway(told, hint=CHECK)
    return StoreRefused(told, hint=HINTS.get(answer.status_code, CHECK), code=code, status=answer.status_code)


def _first_cause(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    inner = error.args[-1] if error.args else None
    return inner if isinstance(inner, BaseException) else error


def _without_secrets(text: str, uri: str) -> str:
    """Also of a header that cannot be sent: a token that ends with its file's line break is quoted whole."""
    return scrubbed(text, (os.environ.get(name, "").strip() for name in SECRETS)).replace(uri, redacted(uri))
