"""A person's own windows, from files and folders."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from slo.windows import windows_by_period, windows_for
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError

FILE = """\
apiVersion: sloth.slok.dev/v1
kind: AlertWindows
spec:
  sloPeriod: {period}
  page:
    quick: {{errorBudgetPercent: 8, shortWindow: 5m, longWindow: 1h}}
    slow: {{errorBudgetPercent: 12.5, shortWindow: 30m, longWindow: 6h}}
  ticket:
    quick: {{errorBudgetPercent: 20, shortWindow: 2h, longWindow: 1d}}
    slow: {{errorBudgetPercent: 42, shortWindow: 6h, longWindow: 3d}}
"""


def test_a_folder_takes_the_place_of_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "week.yaml").write_text(FILE.format(period="7d"))
    (tmp_path / "deeper" / "quarter.yml").write_text(FILE.format(period="90d"))
    assert sorted(length.days for length in windows_by_period(tmp_path)) == [7, 90]
    with pytest.raises(UsageError, match="there are windows for: 1w, 90d"):
        windows_for(timedelta(days=30), tmp_path)


def test_every_wrong_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FILE.format(period="never"))
    (tmp_path / "b.yaml").write_text("kind: Nothing\n")
    with pytest.raises(SpecError) as caught:
        windows_by_period(tmp_path)
    assert {Path(problem.file).name for problem in caught.value.problems} == {"a.yaml", "b.yaml"}


def test_one_period_twice_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no YAML file"):
        windows_by_period(tmp_path)
    (tmp_path / "a.yaml").write_text(FILE.format(period="7d"))
    (tmp_path / "b.yaml").write_text(FILE.format(period="1w"))
    with pytest.raises(SpecError, match=r"found 1w; expected a period that .*a.yaml has no windows for"):
        windows_by_period(tmp_path)
