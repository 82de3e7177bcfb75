"""Names of metrics and labels: what one kind of exporter tells, and how its series say whose they are.

Gates, SLO rules and dashboards read the same names, so that a team says once what its own Prometheus has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tidegate.core.model import SpecModel

MetricName = Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")]
LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
VERSION_PLACE = "{version}"
"""In a label's value: where the version's number stands."""


class MetricSignal(StrEnum):
    """What a source may tell of a version."""

    REQUESTS = "requests"
    """How many, and what became of them."""
    TTFT = "ttft"
    ITL = "itl"
    E2E = "e2e"
    QUEUE_TIME = "queue_time"
    ENGINES = "engines"
    """What only an engine knows of itself: tokens, batches, its KV cache."""


TIMES = (MetricSignal.TTFT, MetricSignal.ITL, MetricSignal.E2E, MetricSignal.QUEUE_TIME)
"""Those that are histograms of one time for each request."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]
"""Of a label's whole value, as `=~` of PromQL has it."""


def fits(labels: Mapping[str, str], matchers: Mapping[str, str]) -> bool:
    """Whether a series with these labels is one of those that `matchers` select; a label that is absent is empty."""
    return all(re.fullmatch(pattern, labels.get(name, "")) for name, pattern in matchers.items())


class RequestSeries(SpecModel):
    """A counter of requests by the status of their answers."""

    metric: MetricName
    status: LabelName
    """The label that says it: `503`, or a class such as `5xx`."""
    match: Mapping[LabelName, Pattern] = {}
    """Which of its series are requests of users."""
    broken: Mapping[LabelName, Pattern] = {}
    """Which of its series failed whatever their status says, such as streams that were cut."""
    cut: MetricName | None = None
    """A counter of connections that broke under a request; those before the headers are a 503 as well."""
    timeouts: MetricName | None = None
    """A counter of requests that took too long; those before the headers are a 504 as well."""


class TimeSeries(SpecModel):
    """A histogram with one time for each request."""

    metric: MetricName
    """Without `_bucket`."""
    unit: Literal["seconds", "milliseconds"] = "seconds"
    match: Mapping[LabelName, Pattern] = {}
    """Which of its series are answered requests of users."""
    edges: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """Upper ends of its buckets in `unit`, without the infinite one; an SLO needs to know them, a gate does not."""

    @property
    def seconds(self) -> float:
        """How long its unit is."""
        return {"seconds": 1.0, "milliseconds": 0.001}[self.unit]


ArmValue = Annotated[str, Field(pattern=r"^([^{}]|\{version\})*$", max_length=500)]


class ArmLabels(SpecModel):
    """By which value of a label a series is one of stable or of the canary; `{version}` is the version's number."""

    label: LabelName | None = None
    """The preset's when absent."""
    stable: ArmValue
    canary: ArmValue
    shadow: ArmValue | None = None
    """Of copies of requests, where they are counted; a stage that copies needs it."""


class SourceNames(SpecModel):
    """What is said of a source by a preset, by hand, or by both."""

    match: Mapping[LabelName, Pattern] = {}
    """What all of its series have."""
    requests: RequestSeries | None = None
    ttft: TimeSeries | None = None
    """Time to first token."""
    itl: TimeSeries | None = None
    """Mean time between tokens of one request."""
    e2e: TimeSeries | None = None
    """Time to the last token."""
    queue_time: TimeSeries | None = None
    """Time that a request waits in an engine."""
