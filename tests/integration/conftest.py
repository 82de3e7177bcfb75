"""Which files run at the same time: what takes longest begins first, and real engines two files at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

ENGINES = {
    "test_build": "engines 1",
    "test_real_engine": "engines 1",
    "test_engine": "engines 2",
    "test_real_engines": "engines 2",
}
"""Files of one name run one after the other: more than two at once might need more memory than a machine has."""

LONGEST = (
    *ENGINES,
    "test_torch_compile",
    "test_workflow_deliveries",
    "test_rollback_alone",
    "test_installed_vllm",
    "test_python_api",
    "test_deliver_to_clusters",
    "test_serve",
    "test_promoted_at_once",
    "test_mlflow_stopped",
    "test_burn_rate_on_an_slo",
    "test_steps_in_mlflow",
)
"""Whatever began last, one worker would be alone with it in the end."""


class Files(LoadFileScheduling):
    """A file is never shared by two workers: its fixtures may be one server for all its tests."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return ENGINES.get(Path(file).stem, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Files:
    return Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first.

    Raises:
        UsageError: when a file with real engines is not among those that share a machine's memory.
    """
    for item in filter(_is_here, items):
        if (item.get_closest_marker("engine") is not None) != (item.path.stem in ENGINES):
            raise pytest.UsageError(f"{item.path}: a file is marked `engine` where ENGINES in {__file__} names it")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    return LONGEST.index(item.path.stem) if _is_here(item) and item.path.stem in LONGEST else len(LONGEST)


def _is_here(item: pytest.Item) -> bool:
    return item.path.is_relative_to(Path(__file__).parent)
