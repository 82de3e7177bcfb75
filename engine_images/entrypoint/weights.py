"""Brings a model's files to this machine when the image has none: once, proven, whole.

A shared cache holds one folder for each model digest. It appears in one step, when every file in it is
proven; what is still on its way lies next to it and is continued after a crash. Engines that start together
wait for the one that pulls. Redirects give nothing away: a token stays with the origin it was given for, and https
stays https.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPMessage, IncompleteRead
from ipaddress import ip_address
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from .journal import BadSettings, EventLog, NotAsBuilt, OutsideMissing
from .manifest import digest_of, prove_files
from .runtime_directory import cannot_write

_PORTS = {"http": 80, "https": 443}


def on_loopback(host: str | None) -> bool:
    """Whether nobody else is on the line; a name other than `localhost` may mean any address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


class CarefulRedirects(HTTPRedirectHandler):
    """urllib's follows anywhere, and takes every header along."""

    def redirect_request(  # noqa: PLR0917 (the signature is urllib's)
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """The next request, or none.

        Raises:
            NotAsBuilt: it would leave https.
        """
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise NotAsBuilt(f"{req.host} redirects from https to {urlsplit(newurl).scheme}; nothing is fetched there")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and _origin(newurl) != _origin(req.full_url):
            # urllib writes headers' names with one capital letter.
            request.headers.pop("Authorization", None)
        return request


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


CHUNK_BYTES = 1 << 20
TOGETHER = 4
"""Files that are fetched at once."""
ATTEMPTS = 5
PAUSE_SECONDS = 1.0
"""Before the second attempt; each further pause is twice as long."""
SILENCE_SECONDS = 60.0
"""A store that sends nothing for so long is gone."""
PARTIAL = "partial"
"""Behind the name of a file that is not there wholly."""

_OPENER = build_opener(CarefulRedirects)


class FileAbsent(NotAsBuilt):
    """The source has no such file."""


class Source:
    """An artifact store or a mounted folder: `https://host/path`, `file:///mnt/models/7` or `/mnt/models/7`."""

    def __init__(self, where: str, *, token: str | None = None) -> None:
        """`token` goes to an artifact store as its bearer token; it is never logged.

        Raises:
            BadSettings: another kind of place, or one that would get the token over a line that others can read.
        """
        parts = urlsplit(where)
        if parts.scheme not in {"", "file", "http", "https"}:
            raise BadSettings(f"weights come from http, https or a folder, not from {parts.scheme}")
        if token and parts.scheme == "http" and not on_loopback(parts.hostname):
            raise BadSettings(f"{parts.hostname} would get the token over plain http; give its https address")
        self._folder = Path(unquote(parts.path)) if parts.scheme in {"", "file"} else None
        self._url = where.rstrip("/")
        self._token = token
        self.name = f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else parts.path
        """Without credentials."""

    def fetch(self, path: str, target: Path) -> None:
        """Bring the file `path` to `target`.

        Raises:
            NotAsBuilt: the source does not have it.
            OutsideMissing: the source or the disk fails, also when asked again.
        """
        if self._folder is not None:
            self._copy(self._folder / path, target)
            return None
        for attempt in range(ATTEMPTS):
            try:
                return self._download(path, target)
            except HTTPError as error:
                if error.code == 404:
                    raise FileAbsent(f"{self.name} answers 404 for {path}") from error
                if error.code < 500 and error.code not in {408, 429}:
                    raise NotAsBuilt(f"{self.name} answers {error.code} for {path}") from error
                problem: Exception = error
            except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
                problem = error
            time.sleep(PAUSE_SECONDS * 2**attempt)
        raise OutsideMissing(f"{self.name} does not give {path}: {problem}")

    def _copy(self, file: Path, target: Path) -> None:
        try:
            original = file.open("rb")
        except FileNotFoundError as error:
            raise FileAbsent(f"{file} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise NotAsBuilt(f"{file} cannot be read: {error.strerror}") from error
        with original, target.open("wb") as stream:
            shutil.copyfileobj(original, stream, CHUNK_BYTES)

    def _download(self, path: str, target: Path) -> None:
        have = target.stat().st_size if target.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            # The scheme is http or https: the constructor saw to it.
            response = _OPENER.open(Request(f"{self._url}/{quote(path)}", headers=headers), timeout=SILENCE_SECONDS)
        except HTTPError as error:
            if error.code != 416:
                raise
            # Nothing behind what we have: it is whole, or longer than the original and will not be proven.
            return
        with response, target.open("ab" if response.status == 206 else "wb") as stream:
            shutil.copyfileobj(response, stream, CHUNK_BYTES)
            if response.length:
                # The connection ended before the announced length.
                raise IncompleteRead(b"", response.length)


def ensure(cache: Path, digest: str, files: Mapping[str, str], sources: Sequence[Source], journal: EventLog) -> Path:
    """The folder below `cache` with exactly these files, fetched when it is not there yet.

    Raises:
        NotAsBuilt: a file of the cache or the source has another digest, or is missing.
        OutsideMissing: the source or the disk fails.
    """
    folder = cache / digest.removeprefix("sha256:")
    if not folder.is_dir():
        with _alone(cache, folder.name, journal):
            # Anyone who we waited for has brought it.
            if not folder.is_dir():
                _pull(folder, files, sources, journal)
                return folder
    prove_files(folder, files)
    journal.info("weights found", folder=folder)
    return folder


def _pull(folder: Path, files: Mapping[str, str], sources: Sequence[Source], journal: EventLog) -> None:
    began = time.monotonic()
    partial = folder.with_name(f".{folder.name}.{PARTIAL}")
    try:
        _fetch_all(partial, files, sources)
        prove_files(partial, files)
        partial.rename(folder)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            # Room for anyone else who uses this disk.
            shutil.rmtree(partial, ignore_errors=True)
        raise cannot_write(partial, error) from error
    journal.info("weights pulled", source=_names(sources), folder=folder, seconds=round(time.monotonic() - began, 1))


def _names(sources: Sequence[Source]) -> str:
    return " and ".join(source.name for source in sources)


def _fetch_all(partial: Path, files: Mapping[str, str], sources: Sequence[Source]) -> None:
    partial.mkdir(parents=True, exist_ok=True)
    wanted = {partial / path for path in files} | {partial / f"{path}.{PARTIAL}" for path in files}
    # An earlier attempt may have left more there than what is to be continued.
    for file in [file for file in partial.rglob("*") if file.is_file() and file not in wanted]:
        file.unlink()

    def fetch(path: str) -> None:
        target = partial / path
        target.parent.mkdir(parents=True, exist_ok=True)
        arriving = target.with_name(f"{target.name}.{PARTIAL}")
        if target.exists():
            return
        # The first that has the file gives it: a version's tokenizer may lie next to its weights.
        for source in sources[:-1]:
            with suppress(FileAbsent):
                source.fetch(path, arriving)
                break
        else:
            sources[-1].fetch(path, arriving)
        if digest_of(arriving) != files[path]:
            arriving.unlink()
            raise NotAsBuilt(f"{path} from {_names(sources)} was changed: its SHA-256 is not {files[path]}")
        with arriving.open("rb") as stream:
            os.fsync(stream.fileno())
        arriving.rename(target)

    with ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(fetch, files))


@contextmanager
def _alone(cache: Path, name: str, journal: EventLog) -> Iterator[None]:
    """Hold the lock of one model in the cache; the kernel gives it back when we die."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / f".{name}.lock").open("ab")
    except OSError as error:
        raise cannot_write(cache, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            journal.info("waiting for another engine that pulls the same weights")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
