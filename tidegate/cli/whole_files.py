"""Files that appear whole: nobody ever reads half of one, and a full disk leaves the old ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
            path.parent.mkdir(parents=True, exist_ok=True)
            whole[path] = path.with_name(f".{path.name}.{os.getpid()}.partial")
            whole[path].write_text(text, encoding="utf-8")
        for path, written in whole.items():
            written.replace(path)
    except OSError as error:
        raise UsageError(f"{error.filename}: {(error.strerror or 'cannot be written').lower()}") from error
    finally:
        for written in whole.values():
            written.unlink(missing_ok=True)
