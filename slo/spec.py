"""SLOs as one line each in `delivery.yaml`, and what an engine costs.

The threshold of a time has to lie on the edge of a histogram's bucket: between two edges nobody counted. Engines that
tidegate starts get an edge at each (`added_edges`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from slo.formats.fields import LabelTexts
from slo.formats.fields import Percent as Objective
from slo.metrics import E2E, ITL, QUEUE_TIME, SERVICE, TIME_PER_OUTPUT_TOKEN, TTFT, MetricKind, PrometheusMetric
from slo.windows import windows_by_period
from tidegate.core.metrics import MetricSignal, MetricSource, TimeSeries, source_of, untold
from tidegate.core.model import SpecConflict, SpecModel, Value
from tidegate.core.units import Duration, Percent, PercentText, ShareText, format_duration, percent_too, share_too

LEAST_OBJECTIVE = 50
"""Percent. Nobody promises less, and no burn rate of 2 or more could be reached; who writes 0.999 means 99.9 %."""

_ROUNDING = 0.005
"""Of a person who writes 13.3 tokens a second for an edge at 0.075 s; edges are far wider apart."""


def edge_label(edge: float) -> str:
    """As vLLM's Prometheus client writes an edge in the label `le`: `1.0`, `0.25`."""
    return repr(float(edge))


class Threshold(Value):
    """What good events are told from bad ones by."""

    histogram: PrometheusMetric
    """Of times, in seconds."""
    asked: float
    """Seconds that good events take at most, or how many of them fit into a second."""
    per_second: bool = False
    series: TimeSeries | None = None
    """Who has it under another name than vLLM: then edges are in its unit."""

    @property
    def at_edge(self) -> str:
        """What selects the bucket of the edge."""
        assert self.edge is not None, "a spec with another threshold is refused"
        if self.series is None:
            return f'le="{edge_label(self.edge)}"'
        # Prometheus 3 writes whole numbers as floats, whatever the exporter wrote.
        text = f"{self.edge / self.series.seconds:.12g}"
        return f'le="{text}"' if "." in text else f'le=~"{text}|{text}[.]0"'

    @property
    def edge(self) -> float | None:
        """The edge in seconds: one that is there, or that vLLM can be given; None when there is neither."""
        if not self.histogram.family or self._usual is not None:
            return self._usual
        return round(1 / self.asked if self.per_second else self.asked, 9)

    @property
    def is_added(self) -> bool:
        """Whether only engines that were told so have the edge."""
        return self._usual is None and self.edge is not None

    @property
    def _usual(self) -> float | None:
        tolerance = _ROUNDING if self.per_second else 0
        return next(
            (e for e in self.histogram.edges if math.isclose(self._told(e), self.asked, rel_tol=tolerance)), None
        )

    @property
    def nearest(self) -> tuple[str, ...]:
        """The edge below and the edge above, as a person would ask for them."""
        told = sorted(self._told(edge) for edge in self.histogram.edges)
        below, above = [t for t in told if t < self.asked], [t for t in told if t > self.asked]
        return tuple(self.text(found) for found in (*below[-1:], *above[:1]))

    def text(self, told: float) -> str:
        """`told` as a person writes it."""
        return f"{told:.3g}" if self.per_second else format_duration(timedelta(seconds=told))

    def _told(self, edge: float) -> float:
        return 1 / edge if self.per_second else edge


LATENCIES = {"ttft": TTFT, "itl": ITL, "e2e": E2E, "queue_time": QUEUE_TIME}
"""The engine's histogram behind each SLO on a time."""

_SIGNALS = {kind: MetricSignal(kind) for kind in LATENCIES}

KINDS = ("errors", *LATENCIES, "tokens_per_second", "kv_cache", "quality", "start")
"""What an SLO may promise; each has one."""

SET_BY_RULES = (SERVICE, "region", "role", "version")
"""Labels that tell series apart; one value for all would make them one."""


class CountedBy(StrEnum):
    """Who counts requests and their errors."""

    PROXY = "proxy"
    """Envoy in front of the engines: sees cut streams, timeouts and engines that are gone."""
    ENGINE = "engine"
    """vLLM's own API server, where no proxy of ours is: sees what it answered, not that it died."""


class Errors(SpecModel):
    """Requests that failed by the service's fault: 5xx, timeouts, answers cut off. Refusals (4xx) are none."""

    counted_by: CountedBy | None = None
    """As the fleet counts when absent: by the proxy on this machine, by the engine in a cluster."""


class Within(SpecModel):
    """A time that good events stay below, or at."""

    below: Duration = Field(gt=timedelta(0))


class Speed(SpecModel):
    """Output tokens a second that a request gets after its first one."""

    at_least: float = Field(gt=0)


class KvCacheHeadroom(SpecModel):
    """Share of the KV cache in use; above it, requests soon wait or are preempted."""

    below: Percent = Field(gt=0, lt=1)


_Score = Annotated[float, BeforeValidator(share_too, json_schema_input_type=float | ShareText), Field(gt=0, le=1)]


class Quality(SpecModel):
    """Score that an online judge gives, 0 to 1."""

    at_least: _Score
    dimension: str = Field(default="overall", pattern=r"^[A-Za-z0-9_.-]+$")


class SloSpec(SpecModel):
    """One promise of a model to its users, on the metrics that its engines and the proxy export."""

    one_of = KINDS

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,61}[a-z0-9]$")
    """Becomes part of the names of rules and of Kubernetes objects."""
    objective: Annotated[Objective, BeforeValidator(percent_too, json_schema_input_type=Objective | PercentText)]
    """Percent of good events, such as 99.9; of `kv_cache` and `quality`, percent of the time, of `start`, of starts."""
    window: Duration = timedelta(days=30)
    """Over which the promise holds; there are alert windows for 28 and 30 days."""
    description: str = Field(default="", pattern=r"^[^{}]*$")
    """What users may count on, in words; said for you when absent. Without braces, which alerts take for a template."""
    runbook: str = Field(default="", pattern=r"^[^{}\s]*$")
    """Address of what to do about an alert; a section of the documentation when absent."""
    labels: LabelTexts = Field(default_factory=dict)
    """Of all rules of the SLO."""
    errors: Errors | None = None
    ttft: Within | None = None
    """Time to first token."""
    itl: Within | None = None
    """Time between one token and the next."""
    e2e: Within | None = None
    """Time to the last token."""
    queue_time: Within | None = None
    """Time that a request waits in the engine before it is computed on."""
    tokens_per_second: Speed | None = None
    kv_cache: KvCacheHeadroom | None = None
    quality: Quality | None = None
    start: Within | None = None
    """Time from an engine's first process until it takes requests."""

    @property
    def kind(self) -> str:
        """Which of `KINDS` it promises."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def signal(self) -> MetricSignal | None:
        """What it is told by; None of a judge's scores, which are tidegate's own."""
        return {"errors": MetricSignal.REQUESTS, "quality": None}.get(
            self.kind, _SIGNALS.get(self.kind, MetricSignal.ENGINES)
        )

    @property
    def threshold(self) -> Threshold | None:
        """Where a histogram of vLLM tells good from bad; None of kinds that no histogram counts."""
        return self.threshold_in(())

    def threshold_in(self, sources: Sequence[MetricSource]) -> Threshold | None:
        """As `threshold`, in the first of `sources` that has the histogram."""
        if self.tokens_per_second:
            speed = self.tokens_per_second.at_least
            return Threshold(histogram=TIME_PER_OUTPUT_TOKEN, asked=speed, per_second=True)
        within: Within | None = getattr(self, self.kind) if self.kind in LATENCIES else None
        if within is None:
            return None
        asked, signal = within.below.total_seconds(), _SIGNALS[self.kind]
        source = source_of(sources, signal)
        series = None if source is None or source.is_vllms_own(signal) else source.time_series(signal)
        if series is None:
            return Threshold(histogram=LATENCIES[self.kind], asked=asked)
        edges = tuple(round(edge * series.seconds, 9) for edge in series.edges)
        histogram = PrometheusMetric(name=series.metric, kind=MetricKind.HISTOGRAM, edges=edges)
        return Threshold(histogram=histogram, asked=asked, series=series)

    def contradictions(self) -> Iterator[SpecConflict]:
        """Windows, an objective without a budget or a share of one, and labels that the rules set themselves."""
        if self.objective == 100:
            yield SpecConflict(("objective",), "100", "less than 100: a promise of no bad event at all has no budget")
        if self.objective < LEAST_OBJECTIVE:
            meant = f"; did you mean {self.objective * 100:.12g}%?" if self.objective < 1 else ""
            expected = f"at least {LEAST_OBJECTIVE}, percent of good events{meant}"
            yield SpecConflict(("objective",), f"{self.objective:.12g}", expected)
        if self.window not in windows_by_period():
            periods = " or ".join(format_duration(period) for period in sorted(windows_by_period()))
            yield SpecConflict(("window",), format_duration(self.window), f"a period that has alert windows: {periods}")
        for label in self.labels:
            if label in SET_BY_RULES or label.startswith("sloth_"):
                yield SpecConflict(("labels", label), label, "another name: the rules set this label themselves")

    def unmeasured(self, sources: Sequence[MetricSource], *, told: bool = False) -> Iterator[SpecConflict]:
        """What its promise rests on, and nobody counts: a signal that no source has, a threshold between two buckets.

        `told` says whether engines get `added_edges`.
        """
        if self.signal and sources:
            missing = list(untold(sources, self.signal, (self.kind,)))
            if self.errors and self.errors.counted_by:
                found = f"{self.errors.counted_by} next to `metrics.sources`"
                yield SpecConflict(("errors", "counted_by"), found, "nothing: the source of requests says who counts")
            if missing:
                yield from missing
                return
        threshold = self.threshold_in(sources)
        if threshold and not threshold.histogram.edges:
            found = f"{threshold.histogram.name}, whose buckets nobody has said"
            yield SpecConflict((self.kind,), found, f"its edges at metrics.sources, key {self.signal}.edges")
        elif threshold and (threshold.edge is None or (threshold.is_added and not told)):
            key = "at_least" if threshold.per_second else "below"
            nearest = " and ".join(threshold.nearest)
            one_over = "one over " if threshold.per_second else ""
            expected = f"{one_over}an edge of {threshold.histogram.name}'s buckets; the nearest: {nearest}"
            yield SpecConflict((self.kind, key), threshold.text(threshold.asked), expected)


def added_edges(slos: Iterable[SloSpec], sources: Sequence[MetricSource]) -> dict[str, list[float]]:
    """What engines need of `custom-histogram-buckets`: vLLM's own edges and those of thresholds between them."""
    found: dict[str, set[float]] = {}
    for threshold in (slo.threshold_in(sources) for slo in slos):
        if threshold and threshold.is_added and threshold.edge is not None:
            found.setdefault(threshold.histogram.family, {*threshold.histogram.edges}).add(threshold.edge)
    return {family: sorted(edges) for family, edges in found.items()}


class CostSpec(SpecModel):
    """What engines cost; without it, dashboards show no cost."""

    per_engine_hour: float = Field(gt=0)
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """As ISO 4217 writes it."""
    budget_per_month: float | None = Field(default=None, gt=0)
    """For all regions together; a month has 30 days."""


def named_twice(slos: Iterable[SloSpec]) -> Iterator[SpecConflict]:
    """SLOs under a delivery's key `slos` that would write the same series."""
    names = [slo.name for slo in slos]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield SpecConflict(("slos", index, "name"), f"{name} twice", "a name of its own for each SLO")
