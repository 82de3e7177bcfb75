"""Which files run at the same time: what takes longest begins first, and real engines two files at a time.

`pytest --dist loadfile` runs by these rules; a run within one process keeps the order alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

ENGINES = {
    "test_kills": "engines 1",
    "test_build": "engines 1",
    "test_engine": "engines 1",
    "test_endings": "engines 2",
    "test_real_engine": "engines 2",
}
"""Files of one name run one after the other: more than two at once might need more memory than a machine has."""

LONGEST = (
    *ENGINES,
    "test_serve",
    "test_real_fleet_contract",
    "test_fleet_host",
    "test_deliver_with_git",
    "test_rollback_alone",
    "test_python_api",
    "test_load",
)
"""Whatever began last, one worker would be alone with it in the end."""


class Files(LoadFileScheduling):
    """A file is never shared by two workers: its fixtures may be one server for all its tests."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return ENGINES.get(Path(file).stem, file)


def require_marks(items: list[pytest.Item]) -> None:
    """Refuse a file of real engines that is not among those which share a machine's memory.

    Raises:
        UsageError: there is one, or one of `ENGINES` has no engines.
    """
    for item in items:
        if (item.get_closest_marker("engine") is not None) != (item.path.stem in ENGINES):
            raise pytest.UsageError(f"{item.path}: a file is marked `engine` where ENGINES in {__file__} names it")


def turn(item: pytest.Item) -> int:
    """When it begins: the place of its file among the longest, or after them."""
    return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)
