"""Proves that files are the registered ones: a SHA-256 per file, one over all, and what differs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tidegate.core.model import Value


class Difference(Value):
    """How found files differ from the expected ones; falsy when they do not."""

    missing: tuple[str, ...] = ()
    """Registered, and not there."""
    extra: tuple[str, ...] = ()
    """There, and not registered: a loader might read it all the same."""
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed)

    def __str__(self) -> str:
        """As a person reads it: `changed: model.safetensors; missing: config.json`."""
        kinds = {"changed": self.changed, "missing": self.missing, "extra": self.extra}
        return "; ".join(f"{kind}: {', '.join(paths)}" for kind, paths in kinds.items() if paths)


def whole_digest(files: Mapping[str, str]) -> str:
    """One digest over all files: their paths count too, their order on disk does not.

    It is what `sha256sum FILES | sha256sum` prints when FILES are sorted by their bytes, so that it can be
    checked without tidegate.
    """
    lines = (f"{files[path]}  {path}\n" for path in sorted(files, key=str.encode))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def compare(expected: Mapping[str, str], found: Mapping[str, str]) -> Difference:
    """Name every file that is missing, extra or changed."""
    return Difference(
        missing=tuple(sorted(expected.keys() - found.keys())),
        extra=tuple(sorted(found.keys() - expected.keys())),
        changed=tuple(sorted(path for path in expected.keys() & found.keys() if expected[path] != found[path])),
    )


def digest_files(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below `folder`, by its relative path with forward slashes.

    Links to files are read through, as Hugging Face's own cache consists of them.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _digest_file(path) for path in files}


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
