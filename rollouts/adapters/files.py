"""Files that others read while we write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def replace_json(path: Path, data: Any) -> None:
    """Put `data` at `path` in one step: a reader sees the old file or the new one, never a half."""
    replace_text(path, json.dumps(data, indent=1))


def replace_text(path: Path, text: str) -> None:
    """As `replace_json`, for what is text already."""
    # In the same folder: a rename is one step only within a file system.
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
