"""Where the fleet host keeps its things, and how others read them while it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.state import StateFolder
from rollouts.local.state_folder import Layout, replace_json
from rollouts.local.watchdog import LOCK


def test_paths_are_absolute_because_processes_elsewhere_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    layout = Layout(Path(".tidegate"))
    monkeypatch.chdir("/")
    assert layout.record == tmp_path / ".tidegate" / "fleet" / "host.json"


def test_the_host_watches_the_lock_that_a_delivery_holds(tmp_path: Path) -> None:
    assert StateFolder(tmp_path).lock == tmp_path / LOCK


def test_a_file_that_is_replaced_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    replace_json(path, {"pid": 1})
    with path.open() as reader:
        replace_json(path, {"pid": 2})
        assert json.load(reader) == {"pid": 1}
    assert json.loads(path.read_text()) == {"pid": 2}


def test_replacing_leaves_no_other_file_behind(tmp_path: Path) -> None:
    replace_json(tmp_path / "host.json", {"pid": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["host.json"]


def test_what_cannot_be_written_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    replace_json(path, {"pid": 1})
    with pytest.raises(TypeError):
        replace_json(path, {"pid": object()})
    assert json.loads(path.read_text()) == {"pid": 1}
