"""Finds the spec files of a folder, the ones that Sloth would find and in its order."""

from __future__ import annotations

import re
from pathlib import Path

_SUFFIXES = {".yml", ".yaml"}


def spec_files(folder: Path, *, include: re.Pattern[str] | None, exclude: re.Pattern[str] | None) -> list[Path]:
    """Every YAML file below `folder`, by name; `exclude` wins over `include`, and both look at the whole path."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and not path.is_dir())
    return [path for path in found if _wanted(str(path), include, exclude)]


def _wanted(path: str, include: re.Pattern[str] | None, exclude: re.Pattern[str] | None) -> bool:
    return not (exclude and exclude.search(path)) and (include is None or include.search(path) is not None)
