"""Spec files of a folder are found as Sloth finds them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slo.formats.read import spec_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.yml", "a/z.YAML", "a/notes.txt", "a/deep/x_test.yaml", "c.yaml.bak"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.yaml").mkdir()
    return tmp_path


def names(folder: Path, *, include: str | None = None, exclude: str | None = None) -> list[str]:
    found = spec_files(
        folder,
        include=re.compile(include) if include else None,
        exclude=re.compile(exclude) if exclude else None,
    )
    return [path.relative_to(folder).as_posix() for path in found]


def test_every_yaml_file_is_found_at_any_depth_in_the_order_of_names(folder: Path) -> None:
    assert names(folder) == ["a/deep/x_test.yaml", "a/z.YAML", "b.yml"]


def test_a_filter_looks_at_the_whole_path(folder: Path) -> None:
    assert names(folder, include="/deep/") == ["a/deep/x_test.yaml"]
    assert names(folder, exclude="_test") == ["a/z.YAML", "b.yml"]


def test_what_is_left_out_wins_over_what_is_taken_in(folder: Path) -> None:
    assert names(folder, include="/a/", exclude="deep") == ["a/z.YAML"]
