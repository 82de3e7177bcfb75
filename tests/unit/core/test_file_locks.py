"""Locks of files and folders: one holder, waits that are announced, and no trace of a look."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.files import file_lock, is_locked, lock_open_file, write_atomically


@pytest.fixture(params=["file", "folder"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / "lock" if request.param == "file" else tmp_path


def test_file_lock__has_one_holder_and_announces_a_wait(path: Path) -> None:
    waits, got = threading.Event(), threading.Event()

    def second() -> None:
        with file_lock(path, waits.set):
            got.set()

    with file_lock(path):
        other = threading.Thread(target=second)
        other.start()
        assert waits.wait(10)
        assert not got.is_set()
    other.join(10)
    assert got.is_set()
    with file_lock(path, pytest.fail):
        pass


def test_lock_open_file__is_refused_while_another_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with path.open("ab") as held, path.open("ab") as other:
        assert not is_locked(path)
        assert lock_open_file(held)
        assert is_locked(path)
        assert not lock_open_file(other, seconds=0.06)
        assert not lock_open_file(other, shared=True)
    assert not is_locked(path)


def test_a_full_disk_is_no_wrong_argument_and_leaves_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="no space left on device"):
        write_atomically({Path("/dev/full"): "x" * 100_000})
    with pytest.raises(UsageError):
        write_atomically({tmp_path: "x"})
