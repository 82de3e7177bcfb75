"""What holds for all tests: stories assert too, and no generated input fails because the machine is busy."""

import gc
import os
import sys
from pathlib import Path

import pytest
from fakes.services.shared import begin_sharing, end_sharing
from hypothesis import HealthCheck, settings
from side_by_side import Files, require_marks, turn

pytest_plugins = ["measured"]

# The words of end-to-end stories: pytest explains only the asserts that it is told to.
pytest.register_assert_rewrite("e2e")

UNIT = Path(__file__).parent / "unit"
FROZEN = pytest.StashKey[int]()
"""How many modules there were when garbage collections last stopped looking at what is there."""

# Commands run within the tests' process say what they say in one of their own, where nobody imported MLflow before.
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")

settings.register_profile(
    "tidegate",
    deadline=None,
    max_examples=int(os.environ.get("TIDEGATE_TEST_EXAMPLES", "20")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tidegate")


def pytest_configure(config: pytest.Config) -> None:
    # A worker of pytest-xdist shares with the others what the process that started them has begun.
    if not hasattr(config, "workerinput"):
        begin_sharing()
        config.add_cleanup(end_sharing)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Files | None:
    """Files that may run at the same time, with `--dist loadfile`; else as pytest-xdist does it."""
    return Files(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    require_marks(items)
    items.sort(key=turn)


def pytest_collection_finish() -> None:
    # Ten thousand tests and all that they import stay until the end: looked through by each full garbage collection,
    # they take a seventh of the time of the unit tests.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What a test with servers leaves open is found while its name is known, not by the test after it."""
    if item.path.is_relative_to(UNIT):
        return
    gc.collect()
    if len(sys.modules) > item.config.stash.get(FROZEN, 0):
        # What was imported since stays until the end: looking through MLflow after each test took a fifth of a second.
        gc.freeze()
        item.config.stash[FROZEN] = len(sys.modules)
