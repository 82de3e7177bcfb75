"""Files that appear whole: nobody ever reads half of one, and a full disk leaves the old ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tidegate.core.errors import UsageError


def write_whole(texts: Mapping[Path, str]) -> None:
    """Write every file, and the folders on the way; none is replaced before all are written.

    Raises:
        UsageError: when one cannot be written.
    """
    whole: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            with _told(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                # What is there and is no file, such as /dev/stdout, cannot be replaced.
                direct = path.exists() and not path.is_file()
                to = path if direct else path.with_name(f".{path.name}.{os.getpid()}.partial")
                whole |= {} if direct else {path: to}
                to.write_text(text, encoding="utf-8")
        for path, written in whole.items():
            with _told(path):
                written.replace(path)
    finally:
        for written in whole.values():
            written.unlink(missing_ok=True)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The one in the way may be a folder above it.
        at = error.filename if isinstance(error, FileExistsError | NotADirectoryError) else path
        raise UsageError(f"{at}: {(error.strerror or 'cannot be written').lower()}") from error
