"""Where an engine puts what it writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engine_images.entrypoint.runtime_directory import LONGEST_SOCKET, SOCKET_NAME, RuntimeDirectory


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for that of a socket."""
    with TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder).resolve()


def test_what_an_engine_left_behind_is_gone_when_the_next_one_starts(short: Path) -> None:
    run = RuntimeDirectory(short)
    temporary = run.temporary()
    assert temporary is not None
    (temporary / "left").touch()
    assert run.temporary() == temporary
    assert list(temporary.iterdir()) == []


def test_a_folder_too_deep_for_sockets_is_not_taken(short: Path) -> None:
    fits = LONGEST_SOCKET - SOCKET_NAME - len("/tmp/") - len(os.fsencode(short)) - 1
    for length, taken in ((fits, True), (fits + 1, False)):
        folder = short / ("x" * length)
        folder.mkdir()
        assert (RuntimeDirectory(folder).temporary() is not None) == taken
