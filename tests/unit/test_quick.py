"""`make quick` runs what a change may break, and a log of CI becomes a table."""

from __future__ import annotations

from pathlib import Path

import quick
from ci import figures

HERE = Path(__file__).parent

LOG = """\
part: unit: 203 s
tests/unit/gates/test_a.py::test_a[part: docs: 9 s] PASSED
   12.5 s, set-up 3.1 s, tests/integration/cli/test_serve.py::test_an_alias[a b]
   31.0 s, set-up 0.0 s, tests/e2e/test_kills.py::test_a_kill
started: mlflow: 2
started: mlflow: 1
collected: 14.5 s in 2 processes
===== 9582 passed, 3 skipped in 422.04s (0:07:02) =====
part: integration: 250 s
===== 1 failed, 1475 passed, 9 skipped in 650.00s (0:10:50) =====
part: in all: 1801 s
"""


def chosen(*paths: str) -> set[str]:
    return {path.relative_to(HERE).as_posix() for path in quick.tests_of(map(Path, paths))}


def test_a_module_means_the_tests_of_its_room_and_those_that_import_it() -> None:
    found = chosen("gates/stats/times.py")
    assert {"gates", "test_house.py", "gates/stats/test_grid.py"} <= found
    assert not {"rollouts", "pipelines", "cli", "core"} & found


def test_a_fake_means_all_that_stands_on_it() -> None:
    assert "rollouts/kube/test_client.py" in chosen("tests/fakes/kube/store.py")


def test_a_test_that_is_gone_is_not_run() -> None:
    assert chosen("tests/unit/gates/test_that_was_deleted.py") == {"test_house.py"}


def test_a_log_has_parts_counts_and_the_slowest_first() -> None:
    found = figures(LOG)
    assert found["parts"] == {"unit": 203, "integration": 250, "in all": 1801}
    assert [each["test"].rpartition("::")[2] for each in found["slowest"]] == ["test_a_kill", "test_an_alias[a b]"]
    assert found["started"] == {"mlflow": 3}
    assert [run["counts"] for run in found["pytest"]] == ["9582 passed, 3 skipped", "1 failed, 1475 passed, 9 skipped"]
