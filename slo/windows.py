"""Alert windows: over which windows a burn is measured, and how fast it has to be to page or to open a ticket.

The built-in ones are in `slo/periods`, in Sloth's format `AlertWindows`; a file or folder of a user may stand in their
place. Look here when an SLO's period has no windows, or when an alert's thresholds should differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import Field

from tidegate.core.errors import UsageError
from tidegate.core.model import SpecConflict, SpecModel, Value
from tidegate.core.spec import Problem, SpecError, load_spec, parse_spec
from tidegate.core.units import PrometheusDuration, prometheus_duration

_HOUR = timedelta(hours=1)


class AlertWindow(Value):
    """One speed of burning: so much of the budget in the long window, and still so fast in the short one."""

    short: timedelta
    """Ends the alert soon after the burn has ended."""
    long: timedelta
    error_budget_percent: float = Field(gt=0, le=100)
    """The share of the period's error budget that is spent in the long window, 0 to 100."""
    period: timedelta

    @property
    def factor(self) -> float:
        """Times the speed that spends the whole budget exactly in the period."""
        # In this order, and no other: the last digit stands in the rules, and is Sloth's.
        return self.error_budget_percent * _hours(self.period) / 100 / _hours(self.long)


class Speeds(Value):
    """A fast burn for a short time, or a slow one for a long time."""

    quick: AlertWindow
    slow: AlertWindow


class AlertWindows(Value):
    """What fits SLOs of one period."""

    period: timedelta
    page: Speeds
    ticket: Speeds

    @property
    def lengths(self) -> tuple[timedelta, ...]:
        """Every window that something is recorded over, the shortest first, the period last."""
        pairs = (self.page.quick, self.page.slow, self.ticket.quick, self.ticket.slow)
        return tuple(sorted({self.period, *(length for pair in pairs for length in (pair.short, pair.long))}))


def _hours(length: timedelta) -> float:
    whole, rest = divmod(length, _HOUR)
    return whole + rest / _HOUR


class WindowSpec(SpecModel):
    """One speed."""

    error_budget_percent: float = Field(alias="errorBudgetPercent", gt=0, le=100)
    """Of the period's error budget, spent in the long window: 2 for two percent."""
    short_window: PrometheusDuration = Field(alias="shortWindow", gt=timedelta())
    long_window: PrometheusDuration = Field(alias="longWindow", gt=timedelta())

    def contradictions(self) -> Iterator[SpecConflict]:
        if self.short_window >= self.long_window:
            yield SpecConflict(
                ("shortWindow",),
                found=prometheus_duration(self.short_window),
                expected=f"less than the long window, {prometheus_duration(self.long_window)}",
            )

    def window(self, period: timedelta) -> AlertWindow:
        return AlertWindow(
            short=self.short_window,
            long=self.long_window,
            error_budget_percent=self.error_budget_percent,
            period=period,
        )


class SpeedsSpec(SpecModel):
    """Both speeds of one alert."""

    quick: WindowSpec
    slow: WindowSpec

    def speeds(self, period: timedelta) -> Speeds:
        return Speeds(quick=self.quick.window(period), slow=self.slow.window(period))


class PeriodSpec(SpecModel):
    """What fits SLOs of one period."""

    slo_period: PrometheusDuration = Field(alias="sloPeriod", gt=timedelta())
    page: SpeedsSpec
    ticket: SpeedsSpec

    def contradictions(self) -> Iterator[SpecConflict]:
        for alert in ("page", "ticket"):
            for speed in ("quick", "slow"):
                window: WindowSpec = getattr(getattr(self, alert), speed)
                if window.long_window > self.slo_period:
                    yield SpecConflict(
                        (alert, speed, "longWindow"),
                        found=prometheus_duration(window.long_window),
                        expected=f"at most the period, {prometheus_duration(self.slo_period)}",
                    )


class AlertWindowsSpec(SpecModel):
    """The whole file."""

    api_version: Literal["sloth.slok.dev/v1"] = Field(alias="apiVersion")
    kind: Literal["AlertWindows"]
    spec: PeriodSpec

    def windows(self) -> AlertWindows:
        """What the file says, as the rest of the room reads it."""
        period = self.spec.slo_period
        return AlertWindows(period=period, page=self.spec.page.speeds(period), ticket=self.spec.ticket.speeds(period))


WindowsByPeriod = dict[timedelta, AlertWindows]

_SUFFIXES = {".yaml", ".yml"}


def windows_for(period: timedelta, extra: Path | None = None) -> AlertWindows:
    """The windows of an SLO over `period`; `extra`, a file or folder, stands in place of the built-in ones.

    Raises:
        UsageError: when there are none for this period; it names the periods that have some.
        SpecError: with every problem of the files in `extra`.
    """
    return windows_among(windows_by_period(extra), period)


def windows_among(known: WindowsByPeriod, period: timedelta) -> AlertWindows:
    """As `windows_for`, of windows that were read already."""
    if period in known:
        return known[period]
    there_are = ", ".join(prometheus_duration(length) for length in sorted(known)) or "none"
    raise UsageError(
        f"no alert windows for an SLO period of {prometheus_duration(period)}; there are windows for: {there_are}",
        hint="describe yours in a file of kind AlertWindows and name it with --slo-period-windows-path",
    )


def windows_by_period(extra: Path | None = None) -> WindowsByPeriod:
    """Every period that has windows.

    Raises:
        SpecError: with every problem of the files in `extra`.
    """
    return _built_in() if extra is None else _collected(_loaded(extra))


@cache
def _built_in() -> WindowsByPeriod:
    texts = sorted(files("slo").joinpath("periods").iterdir(), key=lambda file: file.name)
    specs = [(file.name, parse_spec(file.read_text("utf-8"), AlertWindowsSpec, file=file.name)) for file in texts]
    return _collected(specs)


def _loaded(path: Path) -> list[tuple[str, AlertWindowsSpec]]:
    """Every file is read before any of them is refused."""
    problems, specs = [], []
    for file in _files_of(path):
        try:
            specs.append((str(file), load_spec(file, AlertWindowsSpec)))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return specs


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise SpecError([Problem(str(path), 1, "", "no YAML file", "a folder with files of kind AlertWindows")])
    return found


def _collected(specs: Iterable[tuple[str, AlertWindowsSpec]]) -> WindowsByPeriod:
    known: WindowsByPeriod = {}
    named: dict[timedelta, str] = {}
    problems = []
    for file, spec in specs:
        windows = spec.windows()
        if first := named.get(windows.period):
            length = prometheus_duration(windows.period)
            problems.append(Problem(file, 1, "spec.sloPeriod", length, f"a period that {first} has no windows for"))
            continue
        named[windows.period], known[windows.period] = file, windows
    if problems:
        raise SpecError(problems)
    return known
