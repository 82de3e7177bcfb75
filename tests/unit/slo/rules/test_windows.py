from __future__ import annotations

from datetime import timedelta

import pytest

from slo.windows import AlertWindowsSpec, windows_for
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError, parse_spec

WEEK = """\
apiVersion: sloth.slok.dev/v1
kind: AlertWindows
spec:
  sloPeriod: 1w
  page:
    quick: {errorBudgetPercent: 8, shortWindow: 5m, longWindow: 1h}
    slow: {errorBudgetPercent: 12.5, shortWindow: 30m, longWindow: 6h}
  ticket:
    quick: {errorBudgetPercent: 20, shortWindow: 2h, longWindow: 1d}
    slow: {errorBudgetPercent: 42, shortWindow: 6h, longWindow: 3d}
"""


def test_a_period_without_windows_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(UsageError, match=r"no alert windows for an SLO period of 90d; there are windows for: 4w, 30d"):
        windows_for(timedelta(days=90))


def test_a_file_says_other_windows() -> None:
    windows = parse_spec(WEEK, AlertWindowsSpec, file="week.yaml").windows()
    assert windows.period == timedelta(days=7)
    assert windows.page.quick.factor == pytest.approx(0.08 * 168)


def test_every_problem_of_a_file_is_named_with_its_line() -> None:
    wrong = WEEK.replace("shortWindow: 5m", "shortWindow: 1h").replace("longWindow: 3d", "longWindow: 2w")
    with pytest.raises(SpecError) as caught:
        parse_spec(wrong, AlertWindowsSpec, file="week.yaml")
    assert [str(problem) for problem in caught.value.problems] == [
        "week.yaml:10: spec.ticket.slow.longWindow: found 2w; expected at most the period, 1w",
        "week.yaml:6: spec.page.quick.shortWindow: found 1h; expected less than the long window, 1h",
    ]
