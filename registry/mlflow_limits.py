"""What MLflow's own client lacks: an end of every answer, in time and in size, and writes that are not sent twice.

It asks servers with `requests`, by an adapter and a retry policy that are looked up in one of its modules.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import local
from typing import Any
from urllib.parse import urlsplit

import urllib3
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_TIMEOUT
from mlflow.utils import request_utils
from requests import PreparedRequest, Response
from urllib3.exceptions import InsecureRequestWarning, MaxRetryError, SSLError
from urllib3.response import BaseHTTPResponse

from registry.errors import CHECK, TAKES_NOT, StoreRefused, StoreUnreachable, first_line
from tidegate.core.text import json_of

MADE_ONCE = re.compile(r"/(runs/create|logged-models|model-versions/create)$")
"""POSTs that make another run, logged model or version each time: a second delivery would be waited for."""
PASSING = request_utils._TRANSIENT_FAILURE_RESPONSE_CODES
"""Statuses of faults that pass."""
UNTOUCHED = 429
"""The one status of those that pass which says that nothing was done."""
CERTIFICATE = "MLFLOW_TRACKING_CLIENT_CERT_PATH names a file with certificate and key"
HUNG_UP = f"a server that wants another client certificate hangs up too: {CERTIFICATE}"
HINTS = {
    400: TAKES_NOT,
    401: "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
    403: "MLflow does not let this user do it",
}
"""What to do about each status."""
PROBLEMS = (
    (
        re.compile(r"certificate verify failed: ([^(]*)"),
        "its certificate is not believed: {}",
        "MLFLOW_TRACKING_SERVER_CERT_PATH names a file of authorities",
    ),
    (
        re.compile(r"alert (certificate required|unknown ca|bad certificate|handshake failure)", re.I),
        "no client certificate that it takes: {}",
        CERTIFICATE,
    ),
    (re.compile(r"(.*TLS certificate.*)"), "{}", f"check MLFLOW_TRACKING_SERVER_CERT_PATH; {CERTIFICATE}"),
)
"""What OpenSSL and `requests` say, what we do, and what a person can do about it."""
TRANSFER_SECONDS = 120.0
"""Of silence in the middle of a file: a store may take its time to put it away."""
PART_BYTES = 1 << 20
MOST_BYTES = 64 << 20
"""Of an answer that is no file: a thousand deliveries with all their events have 40 MB."""
SLOWEST_BYTES = 10_000
"""A second: what comes slower counts as a connection that stands still."""


class UnboundedAnswer(OSError):
    """What answers does not come to an end in time, or in size."""


class Retries(request_utils.Retry):  # type: ignore[name-defined, misc]  # MLflow's own name: without it no limit holds
    """As MLflow chose them, until a request's time is over."""

    _until: float | None = None

    def __init__(self, *chosen: Any, **named: Any) -> None:
        # The last answer says what is wrong.
        super().__init__(*chosen, **named | {"raise_on_status": False})

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        *context: Any,
        **named: Any,
    ) -> Retries:
        again: Retries = super().increment(method, url, response, error, *context, **named)
        now = time.monotonic()
        again._until = self._until or now + float(MLFLOW_HTTP_REQUEST_TIMEOUT.get())  # type: ignore[no-untyped-call]
        untouched = response.status == UNTOUCHED if response else error and self._is_connection_error(error)
        once = method == "POST" and MADE_ONCE.search(urlsplit(url or "").path)
        pause = (response and again.get_retry_after(response)) or again.get_backoff_time()
        if (once and not untouched) or now + pause >= again._until or isinstance(error, SSLError):
            raise MaxRetryError(named["_pool"], url, error) from error
        return again


_asked = local()


def what_failed(place: str, said: str, cause: BaseException) -> StoreUnreachable | None:
    """Say what became of the last request of this thread; None when it was answered.

    Args:
        place: who was asked.
        said: one line of `cause`.
        cause: the first of the errors that led to the one that MLflow raised.
    """
    answer: Response | None = getattr(_asked, "last", None)
    if isinstance(cause, UnboundedAnswer):
        return StoreUnreachable(f"{place}: {said}", hint=CHECK)
    # MLflow's own errors do not keep the status.
    if answer is not None and not answer.ok:
        told, code = answer.text, ""
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            content = json_of(answer.content)
            told, code = str(content["message"]), str(content.get("error_code", ""))
        told = f"{place}: answered {answer.status_code}: {first_line(told)}"
        if answer.status_code in PASSING:
            return StoreUnreachable(told, hint=CHECK)
        return StoreRefused(told, hint=HINTS.get(answer.status_code, CHECK), code=code, status=answer.status_code)
    for pattern, problem, hint in PROBLEMS:
        if found := pattern.search(said):
            return StoreUnreachable(f"{place}: {problem.format(found[1].strip())}", hint=hint)
    if answer is not None:
        return None
    hung_up = place.startswith("MLflow store https:") and isinstance(cause, ConnectionError)
    return StoreUnreachable(f"{place}: no answer ({said})", hint=HUNG_UP if hung_up else CHECK)


class Adapter(request_utils.TCPKeepAliveHTTPAdapter):
    """Reads no answer without an end."""

    def send(  # type: ignore[override]  # MLflow gives one number
        self, request: PreparedRequest, stream: bool = False, timeout: float = 0, **named: Any
    ) -> Response:
        seconds = float(MLFLOW_HTTP_REQUEST_TIMEOUT.get())  # type: ignore[no-untyped-call]
        if stream or request.method == "PUT":
            seconds = max(seconds, TRANSFER_SECONDS)
        _asked.last = None
        answer: Response = super().send(request, stream=stream, timeout=(timeout, seconds), **named)
        most = None if stream else MOST_BYTES
        # What `requests` reads a body by, all at once and in parts.
        answer.iter_content = lambda *_, **__: _parts(answer.raw, most, seconds)  # type: ignore[method-assign]
        _asked.last = answer
        return answer


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


def limit_requests() -> None:
    """Let MLflow's client ask every server so, from its first request on."""
    request_utils.TCPKeepAliveHTTPAdapter = Adapter  # type: ignore[misc]
    request_utils.Retry = Retries  # type: ignore[attr-defined]
    # Each retry is a warning, and what fails in the end is told in one line.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    urllib3.disable_warnings(InsecureRequestWarning)
