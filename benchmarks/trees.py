"""The working tree, and that of an older commit, for what compares the two."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def packages_of(tree: Path) -> list[str]:
    """Of the wheel."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())
    packages: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return packages


def archived(commit: str, into: Path) -> Path:
    """That commit's files."""
    into.mkdir()
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(into)], input=packed.stdout, check=True)
    return into
