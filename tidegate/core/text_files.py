"""Reads text that people wrote: what cannot be read is one line with the place, never a traceback."""

from __future__ import annotations

import codecs
from pathlib import Path

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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
        raise Unreadable(*_no_utf_8(content, error.start)) from error
    # Of a file that was cut its length is what is wrong.
    if whole and "\0" in text:
        before = text[: text.index("\0")]
        raise Unreadable("a binary file", before.count("\n") + 1)
    return text


def _no_utf_8(content: bytes, at: int) -> tuple[str, int]:
    if content.startswith(UTF_16):
        return "UTF-16 text", 1
    if b"\0" in content:
        return "a binary file", 1
    return f"bytes that are no UTF-8 (0x{content[at]:02x})", content.count(b"\n", 0, at) + 1
