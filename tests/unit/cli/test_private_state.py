"""What a machine keeps of its deliveries is nobody else's to read, to change, or to lock."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.cli.settings import require_own
from tidegate.core.errors import Refused


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_another_users_folder_is_refused_and_roots_is_not() -> None:
    with pytest.raises(Refused, match=r"belongs to user 4711, who could change .* --state"):
        require_own(Path("state"), owner=4711, user=4712)
    require_own(Path("state"), owner=0, user=4712)
    require_own(Path("state"), owner=4711, user=4711)


def test_every_command_with_a_state_folder_closes_it(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    main(["status", str(tmp_path / "nowhere.yaml"), "--state", str(tmp_path / "state")])
    (tmp_path / "new").mkdir()
    assert (mode(tmp_path / "state"), mode(tmp_path / "new")) == (0o700, 0o700)
