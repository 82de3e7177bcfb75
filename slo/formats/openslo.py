"""OpenSLO v1alpha: good events over all events, one SLO for each objective, no alerts."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, Strict, model_validator
from pydantic.alias_generators import to_camel

from slo.formats.fields import Name, Query
from slo.model import RawSli, Slo, SloGroup
from tidegate.core.model import SpecModel, at_odds

OPENSLO_V1 = "openslo/v1alpha"
_CAMEL = ConfigDict(alias_generator=to_camel)


class OpenSloMetric(SpecModel):
    """A query, and who answers it."""

    model_config = _CAMEL

    source: Literal["prometheus", "sloth"]
    query_type: Literal["promql"]
    query: Query


class RatioMetrics(SpecModel):
    """Good events over all events."""

    incremental: bool = False
    counter: bool = False
    good: OpenSloMetric
    total: OpenSloMetric


class Objective(SpecModel):
    """One target of the SLO; what says how to show it is not read."""

    model_config = _CAMEL

    display_name: str = ""
    op: str = ""
    value: float = 0
    ratio_metrics: RatioMetrics
    target: Annotated[float, Strict(), Field(gt=0, le=1)]
    time_slice_target: float | None = None


class TimeWindow(SpecModel):
    """Over how many days the objectives hold; Prometheus' windows always roll."""

    model_config = _CAMEL

    unit: str
    count: int = Field(ge=1)
    is_rolling: bool = True
    calendar: object = None

    @model_validator(mode="after")
    def _counts_days(self) -> Self:
        if self.unit.lower() != "day":
            raise at_odds(f"a window of {self.unit}s", "unit: Day")
        return self


class OpenSloMetadata(SpecModel):
    """What the SLO is called."""

    model_config = _CAMEL

    name: Name
    display_name: str = ""


class OpenSloSpec(SpecModel):
    """The objectives of one indicator of a service."""

    model_config = _CAMEL

    service: Name
    description: str = ""
    indicator: object = None
    budgeting_method: str = ""
    time_windows: tuple[TimeWindow, ...] = Field(default=(), max_length=1)
    objectives: tuple[Objective, ...] = Field(min_length=1)


class OpenSlo(SpecModel):
    """A document of kind SLO."""

    api_version: Literal["openslo/v1alpha"] = Field(alias="apiVersion")
    kind: Literal["SLO"]
    metadata: OpenSloMetadata
    spec: OpenSloSpec

    def group(self, default_period: timedelta) -> SloGroup:
        """One SLO for each objective, named by its number from 0."""
        days = [timedelta(days=window.count) for window in self.spec.time_windows]
        window = days[0] if days else default_period
        slos = [self._slo(index, objective, window) for index, objective in enumerate(self.spec.objectives)]
        return SloGroup(slos=tuple(slos), mode="cli-gen-openslo", spec=OPENSLO_V1)

    def _slo(self, index: int, objective: Objective, window: timedelta) -> Slo:
        good, total = objective.ratio_metrics.good.query, objective.ratio_metrics.total.query
        return Slo(
            service=self.spec.service,
            name=f"{self.metadata.name}-{index}",
            description=self.spec.description,
            # As Sloth rounds, so that the labels are the same.
            objective=objective.target * 100,
            window=window,
            # On lines of their own, so that a query may end in a comment.
            sli=RawSli(error_ratio_query=f"1 - (\n(\n{good}\n)\n/\n(\n{total}\n)\n)"),
        )
