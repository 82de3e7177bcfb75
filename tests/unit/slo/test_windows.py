"""Alert windows of a person's own, from files and folders."""

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
WEEK = FILE.format(period="7d")


def test_a_folder_takes_the_place_of_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "week.yaml").write_text(WEEK)
    (tmp_path / "deeper" / "quarter.yml").write_text(FILE.format(period="90d"))
    found = windows_by_period(tmp_path)
    week = windows_for(timedelta(days=7), found)
    assert week.factor(week.page.quick) == pytest.approx(0.08 * 168)
    with pytest.raises(UsageError, match="there are windows for: 1w, 90d"):
        windows_for(timedelta(days=30), found)


def test_a_period_without_windows_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(UsageError, match=r"no alert windows for an SLO period of 90d; there are windows for: 4w, 30d"):
        windows_for(timedelta(days=90))


def test_every_problem_of_every_file_is_named(tmp_path: Path) -> None:
    wrong = WEEK.replace("shortWindow: 5m", "shortWindow: 1h").replace("longWindow: 3d", "longWindow: 2w")
    (tmp_path / "a.yaml").write_text(wrong)
    (tmp_path / "b.yaml").write_text("kind: Nothing\n")
    with pytest.raises(SpecError) as caught:
        windows_by_period(tmp_path)
    told = [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]
    assert told[:2] == [
        "a.yaml:10: spec.ticket.slow.longWindow: found 2w; expected at most the period, 1w",
        "a.yaml:6: spec.page.quick.shortWindow: found 1h; expected less than the long window, 1h",
    ]
    assert {line.partition(":")[0] for line in told} == {"a.yaml", "b.yaml"}


def test_one_period_twice_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no YAML file"):
        windows_by_period(tmp_path)
    (tmp_path / "a.yaml").write_text(WEEK)
    (tmp_path / "b.yaml").write_text(FILE.format(period="1w"))
    with pytest.raises(SpecError, match=r"found 1w; expected a period that .*a.yaml has no windows for"):
        windows_by_period(tmp_path)
