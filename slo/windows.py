"""Alert windows: over which windows a burn is measured, and how fast it has to be to page or to open a ticket.

The built-in ones are in `slo/periods`, in Sloth's format `AlertWindows`; a file or folder of a user may stand in their
place. Look here when an SLO's period has no windows, or when an alert's thresholds should differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import Field

from tidegate.core.errors import UsageError
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.spec import Problem, SpecError, load_spec, parse_spec
from tidegate.core.units import PrometheusDuration, prometheus_duration

_HOUR = timedelta(hours=1)


class AlertWindow(SpecModel):
    """One speed of burning: so much of the budget in the long window, and still so fast in the short one."""

    error_budget_percent: float = Field(alias="errorBudgetPercent", gt=0, le=100)
    """Of the period's error budget, spent in the long window: 2 for two percent."""
    short: PrometheusDuration = Field(alias="shortWindow", gt=timedelta())
    """Ends the alert soon after the burn has ended."""
    long: PrometheusDuration = Field(alias="longWindow", gt=timedelta())

    def contradictions(self) -> Iterator[SpecConflict]:
        if self.short >= self.long:
            expected = f"less than the long window, {prometheus_duration(self.long)}"
            yield SpecConflict(("shortWindow",), found=prometheus_duration(self.short), expected=expected)


class Speeds(SpecModel):
    """A fast burn for a short time, or a slow one for a long time."""

    quick: AlertWindow
    slow: AlertWindow


class AlertWindows(SpecModel):
    """What fits SLOs of one period."""

    period: PrometheusDuration = Field(alias="sloPeriod", gt=timedelta())
    page: Speeds
    ticket: Speeds

    def contradictions(self) -> Iterator[SpecConflict]:
        for alert, speeds in (("page", self.page), ("ticket", self.ticket)):
            for speed, window in (("quick", speeds.quick), ("slow", speeds.slow)):
                if window.long > self.period:
                    expected = f"at most the period, {prometheus_duration(self.period)}"
                    yield SpecConflict((alert, speed, "longWindow"), prometheus_duration(window.long), expected)

    @property
    def lengths(self) -> tuple[timedelta, ...]:
        """Every window that something is recorded over, the shortest first, the period last."""
        pairs = (self.page.quick, self.page.slow, self.ticket.quick, self.ticket.slow)
        return tuple(sorted({self.period, *(length for pair in pairs for length in (pair.short, pair.long))}))

    def factor(self, window: AlertWindow) -> float:
        """Times the speed that spends the whole budget exactly in the period."""
        # In this order, and no other: the last digit stands in the rules, and is Sloth's.
        return window.error_budget_percent * _hours(self.period) / 100 / _hours(window.long)


def _hours(length: timedelta) -> float:
    whole, rest = divmod(length, _HOUR)
    return whole + rest / _HOUR


class AlertWindowsFile(SpecModel):
    """The whole file."""

    api_version: Literal["sloth.slok.dev/v1"] = Field(alias="apiVersion")
    kind: Literal["AlertWindows"]
    spec: AlertWindows


WindowsByPeriod = Mapping[timedelta, AlertWindows]


def windows_for(period: timedelta, known: WindowsByPeriod | None = None) -> AlertWindows:
    """The windows of an SLO over `period`, of the built-in ones unless others are `known`.

    Raises:
        UsageError: when there are none for this period; it names the periods that have some.
    """
    known = windows_by_period() if known is None else known
    if period in known:
        return known[period]
    there_are = ", ".join(prometheus_duration(length) for length in sorted(known)) or "none"
    raise UsageError(
        f"no alert windows for an SLO period of {prometheus_duration(period)}; there are windows for: {there_are}",
        hint="describe yours in a file of kind AlertWindows and name it with --slo-period-windows-path",
    )


def windows_by_period(extra: Path | None = None) -> WindowsByPeriod:
    """Every period that has windows; `extra`, a file or folder, stands in place of the built-in ones.

    Raises:
        SpecError: with every problem of the files in `extra`.
    """
    if extra is None:
        return _built_in()
    problems, specs = [], []
    for file in _files_of(extra):
        try:
            specs.append((str(file), load_spec(file, AlertWindowsFile).spec))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return _collected(specs)


@cache
def _built_in() -> WindowsByPeriod:
    texts = sorted(files("slo").joinpath("periods").iterdir(), key=lambda file: file.name)
    return _collected(
        (file.name, parse_spec(file.read_text("utf-8"), AlertWindowsFile, file=file.name).spec) for file in texts
    )


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in {".yaml", ".yml"} and file.is_file())
    if not found:
        raise SpecError([Problem(str(path), 1, "", "no YAML file", "a folder with files of kind AlertWindows")])
    return found


def _collected(specs: Iterable[tuple[str, AlertWindows]]) -> WindowsByPeriod:
    known: dict[timedelta, AlertWindows] = {}
    named: dict[timedelta, str] = {}
    for file, windows in specs:
        if first := named.get(windows.period):
            length = prometheus_duration(windows.period)
            expected = f"a period that {first} has no windows for"
            raise SpecError([Problem(file, 1, "spec.sloPeriod", length, expected)])
        named[windows.period], known[windows.period] = file, windows
    return known
