"""Files: text read with the place of what is unreadable instead of a traceback, atomic writes, locks."""

from __future__ import annotations

import codecs
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tidegate.core.errors import OutsideError, UsageError


class Unreadable(Exception):
    """A file is no text that can be read; the message is what was found instead."""

    def __init__(self, found: str, line: int) -> None:
        """`line` is where, from 1."""
        super().__init__(found)
        self.line = line


def read_text(path: Path, *, most_bytes: int | None = None) -> str:
    """The file's text, which is UTF-8, with or without a byte order mark; cut behind `most_bytes`.

    Raises:
        Unreadable: there is no such file, we may not read it, or it is something else than text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(-1 if most_bytes is None else most_bytes + 1)
    except OSError as error:
        raise Unreadable((error.strerror or "an unreadable file").lower(), 1) from error
    return text_of(content, whole=most_bytes is None or len(content) <= most_bytes)


def text_of(content: bytes, *, whole: bool = True) -> str:
    """As `read_text`, of bytes at hand; the last character of what was cut may be a part of one."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(content, final=whole)
    except UnicodeDecodeError as error:
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise Unreadable("UTF-16 text", 1) from error
        line = content.count(b"\n", 0, error.start) + 1
        found = f"bytes that are no UTF-8 (0x{content[error.start]:02x})"
        raise Unreadable(*(("a binary file", 1) if b"\0" in content else (found, line))) from error
    # Of a file that was cut its length is what is wrong.
    if whole and "\0" in text:
        raise Unreadable("a binary file", text.count("\n", 0, text.index("\0")) + 1)
    return text


def write_atomically(texts: Mapping[Path, str]) -> None:
    """Write every file, and the folders on the way; none is replaced before all are written.

    Raises:
        UsageError: when one cannot be written.
        OutsideError: the disk is full or broken.
    """
    whole: dict[Path, Path] = {}
    with ExitStack() as exits:
        for path, text in texts.items():
            with _told(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                # What is there and is no file, such as /dev/stdout, cannot be replaced.
                direct = path.exists() and not path.is_file()
                to = path if direct else exits.enter_context(partial_file(path))
                whole |= {} if direct else {path: to}
                to.write_text(text, encoding="utf-8")
        for path, written in whole.items():
            with _told(path):
                written.replace(path)


def replace_file(path: Path, content: str | bytes) -> None:
    """Put `content` at `path` in one step: a reader sees the old file or the new one, never a half.

    Raises:
        OSError: when it cannot be written; the old file is still there.
    """
    with partial_file(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """Where to write what replaces `path` later; removed at the end when it was not moved."""
    # In the same folder: a rename is one step only within a file system. Its own name: two may write at once.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The one in the way may be a folder above it.
        at = error.filename if isinstance(error, FileExistsError | NotADirectoryError) else path
        # A disk is nobody's wrong argument.
        kind = OutsideError if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else UsageError
        raise kind(f"{at}: {(error.strerror or 'cannot be written').lower()}") from error


LOCK_PAUSE_SECONDS = 0.05
"""Between two tries for a lock."""


def lock_open_file(file: IO[Any] | int, *, shared: bool = False, seconds: float = 0.0) -> bool:
    """Lock an open file until it is closed; the kernel frees it however the process ends.

    Returns:
        False when another process holds it, tried for `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_PAUSE_SECONDS)
        else:
            return True


@contextmanager
def file_lock(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a file, made where it is not there, or of a folder; `waiting` is called before a wait for it.

    Raises:
        OSError: when it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not lock_open_file(descriptor):
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of the file at `path` now; a file that is not there is held by nobody."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return False
    with file:
        # Closing the file gives the lock back at once.
        return not lock_open_file(file, shared=True)
