"""What MLflow's own client lacks: an end of every answer, in time and in size; and what failed, as a server said it.

It asks servers with `requests`, by an adapter that is looked up in one of its modules. The adapter repeats nothing:
what may be sent again is known to `registry.mlflow`.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from threading import local
from typing import Any

import urllib3
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_TIMEOUT
from mlflow.utils import request_utils
from requests import PreparedRequest, Response
from urllib3.exceptions import HTTPError, InsecureRequestWarning
from urllib3.response import BaseHTTPResponse

from registry.errors import CHECK, TAKES_NOT, StoreAway, StoreRefused, StoreUnreachable, first_line
from tidegate.core.text import json_of

PASSING = request_utils._TRANSIENT_FAILURE_RESPONSE_CODES
"""Statuses of faults that pass."""
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


class UnboundedAnswer(OSError):
    """What answers does not come to an end in time, or in size."""


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


class Adapter(request_utils.TCPKeepAliveHTTPAdapter):
    """Reads no answer without an end."""

    def send(  # type: ignore[override]  # MLflow gives one number
        self, request: PreparedRequest, stream: bool = False, timeout: float = 0, **named: Any
    ) -> Response:
        seconds = float(MLFLOW_HTTP_REQUEST_TIMEOUT.get())  # type: ignore[no-untyped-call]
        if stream or request.method == "PUT":
            seconds = max(seconds, TRANSFER_SECONDS)
        _asked.last, self.max_retries = None, urllib3.Retry(0, read=False)
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
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    urllib3.disable_warnings(InsecureRequestWarning)
