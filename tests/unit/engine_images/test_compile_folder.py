"""The folder that a model is compiled in: its path is known to everybody, so what stands there is looked at first."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from engine_images.build.engine_root import fixed_run_folder
from engine_images.errors import EnvironmentMissing

NAME = "0123456789abcdef0123"


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"tidegate-{os.getuid()}"


def test_it_is_always_the_same_below_a_folder_that_only_we_may_enter(parent: Path) -> None:
    assert fixed_run_folder(NAME) == fixed_run_folder(NAME) == parent / "0123456789abcdef"
    assert parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_refused(parent: Path) -> None:
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(EnvironmentMissing, match=r"mode 0777; expected user \d+ alone"):
        fixed_run_folder(NAME)


def test_a_link_is_refused_wherever_it_leads(parent: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    parent.symlink_to(tmp_path / "theirs")
    with pytest.raises(EnvironmentMissing, match="is a link"):
        fixed_run_folder(NAME)


def test_a_file_is_refused(parent: Path) -> None:
    parent.write_text("")
    with pytest.raises(EnvironmentMissing):
        fixed_run_folder(NAME)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_folder_that_somebody_else_made_first_is_refused(parent: Path) -> None:
    parent.mkdir(mode=0o700)
    os.chown(parent, 65534, 65534)
    with pytest.raises(EnvironmentMissing, match="belongs to user 65534"):
        fixed_run_folder(NAME)
