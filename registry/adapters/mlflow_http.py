"""Requests to an MLflow server. The one module of the room that knows the HTTP library.

No error, log line or traceback of this module holds a password or a token.
"""

from __future__ import annotations

import logging
import random
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any
from weakref import finalize

import certifi
import httpx

from registry.adapters.mlflow_address import TRANSFER_SECONDS, MlflowAccess
from registry.errors import StoreRefused, StoreUnreachable
from tidegate import __version__
from tidegate.core.durations import read_retry_after
from tidegate.core.text import json_of

Transport = httpx.BaseTransport

PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""What MLflow's own client takes for faults that pass (`mlflow.utils.request_utils`)."""
UNTOUCHED = frozenset({429})
"""Of these, what says that nothing was done."""
CONNECT_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 120.0
PART_BYTES = 1 << 20
MOST_BYTES = 256 << 20
"""Of an answer that is no file: a thousand deliveries with all their events."""
SLOWEST_BYTES = 10_000
"""A second, of files: what comes slower than this for `TRANSFER_SECONDS` counts as a connection that stands still."""
_NOT_BELIEVED = re.compile(r"certificate verify failed: ([^(]*)")
_NO_CERTIFICATE = re.compile(r"alert (certificate required|unknown ca|bad certificate|handshake failure)", re.I)
"""What OpenSSL says of a server that we do not believe, and of one that does not believe us."""
PARTIAL, RANGE_BEHIND_THE_END = 206, 416

# It logs the URL of every request at the level INFO.
logging.getLogger("httpx").addFilter(lambda record: record.levelno >= logging.WARNING)


class MlflowServer:
    """One MLflow server, over connections that are kept open between requests."""

    def __init__(
        self,
        access: MlflowAccess,
        *,
        transport: Transport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`transport` carries everything when given; for tests."""
        self.url = access.url
        self._access, self._sleep, self._monotonic = access, sleep, monotonic
        headers = {"User-Agent": f"tidegate/{__version__}"}
        if access.token and not access.basic:
            headers["Authorization"] = f"Bearer {access.token}"
        if access.workspace:
            headers["X-MLFLOW-WORKSPACE"] = access.workspace
        try:
            self._client = httpx.Client(
                headers=headers,
                auth=access.basic,
                verify=_tls(access),
                follow_redirects=True,
                transport=transport,
            )
        except OSError as error:
            raise StoreUnreachable(
                f"MLflow store {self.url}: a certificate cannot be read: {error.strerror}",
                hint="check MLFLOW_TRACKING_SERVER_CERT_PATH and MLFLOW_TRACKING_CLIENT_CERT_PATH",
            ) from None

        # Anyone who holds this never says that it is done; connections end with it all the same.
        finalize(self, self._client.close)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What a read says.

        Raises:
            StoreRefused: the server said no; its `code` is MLflow's.
            StoreUnreachable: it did not answer, or not as MLflow does.
        """
        return self._read(self._ask("GET", path, query=query))

    def send(self, method: str, path: str, body: Mapping[str, Any], *, may_repeat: bool = True) -> dict[str, Any]:
        """What a write says. One that must not be carried out twice is not repeated once it may have arrived.

        Raises:
            StoreRefused, StoreUnreachable: as `get`.
        """
        return self._read(self._ask(method, path, body=body, may_repeat=may_repeat))

    def upload(self, path: str, file: Path) -> None:
        """Put a file's bytes.

        Raises:
            StoreRefused, StoreUnreachable: as `get`.
        """
        self._ask("PUT", path, file=file)

    def download(self, path: str, target: Path) -> None:
        """Write the body of an answer to `target`.

        Raises:
            StoreRefused, StoreUnreachable: as `get`.
        """
        self._ask("GET", path, into=target)

    def parts(self, path: str) -> Iterator[bytes]:
        """The body of an answer, in order. A connection that breaks is gone on with where it broke.

        Raises:
            StoreRefused, StoreUnreachable: as `get`.
        """
        had, tried = 0, 0
        while True:
            before = had
            try:
                with self._stream("GET", path, into=True, begin=had) as response:
                    if response.status_code not in PASSING:
                        for part in self._within(_from(response, had, self.url), TRANSFER_SECONDS):
                            had += len(part)
                            yield part
                        return
                    problem = f"answered {response.status_code}: {_said(response)[0]}"
            except httpx.TransportError as error:
                problem = f"no answer ({type(error).__name__})"
            tried = 0 if had > before else tried
            if tried >= self._access.retries:
                raise StoreUnreachable(f"MLflow store {self.url}: {problem}", hint="try again")
            self._sleep(self._pause(tried))
            tried += 1

    def _ask(self, method: str, path: str, *, may_repeat: bool = True, **what: Any) -> httpx.Response:
        # Of files it is unknown how long they take; they only must not stand still.
        until = inf if {"file", "into"} & what.keys() else self._monotonic() + self._access.timeout_seconds
        tried = 0
        while True:
            problem, again, pause = self._once(method, path, **what)
            if isinstance(problem, httpx.Response):
                return problem
            pause = self._pause(tried) if pause is None else min(pause, LONGEST_PAUSE_SECONDS)
            if tried >= self._access.retries or not (again or may_repeat) or self._monotonic() + pause >= until:
                raise StoreUnreachable(
                    f"MLflow store {self.url}: {problem}", hint="check the tracking URI and that the store is running"
                )
            self._sleep(pause)
            tried += 1

    def _once(self, method: str, path: str, **what: Any) -> tuple[httpx.Response | str, bool, float | None]:
        """The answer; or what is wrong, whether nothing can have been done, and how long to wait if the server says."""
        try:
            with self._stream(method, path, **what) as response:
                status = response.status_code
                if status in PASSING:
                    pause = read_retry_after(response.headers.get("Retry-After"))
                    return f"answered {status}: {_said(response)[0]}", status in UNTOUCHED, pause
                if response.is_error:
                    raise _refusal(self.url, response)
                return self._kept(response, what.get("into")), True, None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as error:
            raise StoreUnreachable(
                f"MLflow store {self.url}: {type(error).__name__}", hint="check the tracking URI"
            ) from None
        except (httpx.ConnectError, httpx.ReadError, httpx.WriteError) as error:
            _refuse_tls(self.url, str(error))
            untouched = isinstance(error, httpx.ConnectError)
            return f"no answer ({(str(error) if untouched else '') or self._hung_up(error)})", untouched, None
        except (httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            return f"no answer ({error or type(error).__name__})", True, None
        except httpx.TransportError as error:
            return f"no answer ({self._hung_up(error)})", False, None

    def _kept(self, response: httpx.Response, into: Path | None) -> httpx.Response:
        """The same with all of its body, which is read into memory or into a file."""
        if into is not None:
            with into.open("wb") as file:
                file.writelines(self._within(response.iter_bytes(), TRANSFER_SECONDS))
            return response
        parts = self._within(response.iter_bytes(), self._access.timeout_seconds, most=MOST_BYTES)
        return httpx.Response(response.status_code, content=b"".join(parts))

    def _within(self, parts: Iterator[bytes], seconds: float, *, most: int | None = None) -> Iterator[bytes]:
        """The parts of a body, as long as they come fast enough; a limit of httpx is of one read."""
        begun, size = self._monotonic(), 0
        for part in parts:
            size += len(part)
            if most is not None and size > most:
                raise StoreUnreachable(
                    f"MLflow store {self.url}: answers with more than {most >> 20} MB",
                    hint="check the tracking URI",
                )
            if self._monotonic() - begun > seconds + size / SLOWEST_BYTES:
                raise StoreUnreachable(
                    f"MLflow store {self.url}: its answer comes too slowly, {size} bytes in {seconds:g} s or more",
                    hint="check the tracking URI and the network, or set MLFLOW_HTTP_REQUEST_TIMEOUT",
                )
            yield part

    def _hung_up(self, error: httpx.TransportError) -> str:
        """What became of the connection; no request is in it. Not every server says what it missed in TLS."""
        name = type(error).__name__
        if not self.url.startswith("https:") or isinstance(error, httpx.TimeoutException):
            return name
        return f"{name}; a server that wants another client certificate, MLFLOW_TRACKING_CLIENT_CERT_PATH, hangs up too"

    def _stream(self, method: str, path: str, **what: Any) -> AbstractContextManager[httpx.Response]:
        file, query, body = what.get("file"), what.get("query"), what.get("body")
        content = _Body(file) if file is not None else None
        headers = {"Range": f"bytes={what['begin']}-", "Accept-Encoding": "identity"} if what.get("begin") else {}
        headers |= {"Content-Length": str(file.stat().st_size)} if file is not None else {}
        seconds = self._access.timeout_seconds
        if file is not None or what.get("into") is not None:
            seconds = max(seconds, TRANSFER_SECONDS)
        timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, self._access.timeout_seconds))
        return self._client.stream(
            method, self.url + path, params=query, json=body, content=content, headers=headers, timeout=timeout
        )

    def _pause(self, tried: int) -> float:
        """As MLflow's client waits: the first retry comes at once, the pauses after it double."""
        if tried == 0:
            return 0.0
        doubled: float = self._access.backoff_factor * 2.0**tried
        return min(doubled + random.random(), LONGEST_PAUSE_SECONDS)

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        try:
            content = json_of(response.content)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise StoreUnreachable(
                f"MLflow store {self.url}: what answers there is not MLflow", hint="check the tracking URI"
            )
        return content


class _Body:
    """A file's bytes in parts, from the first one on whenever it is sent again."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        with self._file.open("rb") as opened:
            while part := opened.read(PART_BYTES):
                yield part


def _from(response: httpx.Response, begin: int, url: str) -> Iterator[bytes]:
    """The body from that byte on; not every server goes on where it is told to."""
    if response.status_code == RANGE_BEHIND_THE_END:
        return
    if response.is_error:
        raise _refusal(url, response)
    skip = 0 if response.status_code == PARTIAL else begin
    # Not in parts of one size: what waits to fill one would be lost with the connection.
    for part in response.iter_bytes():
        if len(part) > skip:
            yield part[skip:]
        skip = max(0, skip - len(part))


def _said(response: httpx.Response) -> tuple[str, str]:
    """The first line of what the server says is wrong, and MLflow's name of the error, or ""."""
    # Nobody reads more of a refusal.
    body = b"".join(islice(response.iter_bytes(PART_BYTES), 1))
    try:
        said = json_of(body)
        message, code = str(said["message"]), str(said.get("error_code", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        message, code = body.decode(errors="replace"), ""
    return (message.strip().splitlines() or ["nothing more"])[0][:200], code


def _refuse_tls(url: str, problem: str) -> None:
    """What trying again would not mend.

    Raises:
        StoreUnreachable: the server, or we, could not prove who it is.
    """
    if found := _NOT_BELIEVED.search(problem):
        raise StoreUnreachable(
            f"MLflow store {url}: its certificate is not believed: {found[1].strip()}",
            hint="MLFLOW_TRACKING_SERVER_CERT_PATH names a file of authorities",
        ) from None
    if _NO_CERTIFICATE.search(problem):
        raise StoreUnreachable(
            f"MLflow store {url}: no client certificate that it takes",
            hint="set MLFLOW_TRACKING_CLIENT_CERT_PATH to a file with certificate and key",
        ) from None


def _refusal(url: str, response: httpx.Response) -> StoreRefused:
    said, code = _said(response)
    status = response.status_code
    hint = {
        401: "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
        403: "MLflow does not let this user do it",
        400: "MLflow answers, and takes no such value: change what the message names",
    }.get(status, "check the tracking URI and that the store is running")
    return StoreRefused(f"MLflow store {url}: answered {status}: {said}", hint=hint, code=code, status=status)


def _tls(access: MlflowAccess) -> ssl.SSLContext | bool:
    """What to prove a server by; the library's own authorities where nothing is said."""
    if access.server_certificates is None and access.client_certificate is None:
        return not access.insecure
    authorities = access.server_certificates
    folder = authorities is not None and Path(authorities).is_dir()
    context = ssl.create_default_context(
        cafile=None if folder else authorities or certifi.where(), capath=authorities if folder else None
    )
    if access.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if access.client_certificate:
        context.load_cert_chain(access.client_certificate)
    return context
