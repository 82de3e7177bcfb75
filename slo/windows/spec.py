"""A file of windows for one SLO period, in Sloth's format `AlertWindows`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

from pydantic import Field

from slo.durations import PrometheusDuration, prometheus_duration
from slo.windows.model import Speeds, Window, Windows
from tidegate.core.model import Contradiction, SpecModel


class WindowSpec(SpecModel):
    """One speed."""

    error_budget_percent: float = Field(alias="errorBudgetPercent", gt=0, le=100)
    """Of the period's error budget, spent in the long window: 2 for two percent."""
    short_window: PrometheusDuration = Field(alias="shortWindow", gt=timedelta())
    long_window: PrometheusDuration = Field(alias="longWindow", gt=timedelta())

    def contradictions(self) -> Iterator[Contradiction]:
        if self.short_window >= self.long_window:
            yield Contradiction(
                ("shortWindow",),
                found=prometheus_duration(self.short_window),
                expected=f"less than the long window, {prometheus_duration(self.long_window)}",
            )

    def window(self, period: timedelta) -> Window:
        return Window(
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

    def contradictions(self) -> Iterator[Contradiction]:
        for alert in ("page", "ticket"):
            for speed in ("quick", "slow"):
                window: WindowSpec = getattr(getattr(self, alert), speed)
                if window.long_window > self.slo_period:
                    yield Contradiction(
                        (alert, speed, "longWindow"),
                        found=prometheus_duration(window.long_window),
                        expected=f"at most the period, {prometheus_duration(self.slo_period)}",
                    )


class AlertWindowsSpec(SpecModel):
    """The whole file."""

    api_version: Literal["sloth.slok.dev/v1"] = Field(alias="apiVersion")
    kind: Literal["AlertWindows"]
    spec: PeriodSpec

    def windows(self) -> Windows:
        """What the file says, as the rest of the room reads it."""
        period = self.spec.slo_period
        return Windows(period=period, page=self.spec.page.speeds(period), ticket=self.spec.ticket.speeds(period))
