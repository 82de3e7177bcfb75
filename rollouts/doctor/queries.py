"""Queries of gates and SLOs: what they read from Prometheus, whether it has that, and how often it scrapes engines."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum

import promql_parser as promql

from tidegate.core.durations import format_duration
from tidegate.core.metrics.promql_strings import without_raw_strings
from tidegate.core.model import Value

STATUS_LABELS = (
    *("code", "status", "status_code", "http_status_code", "response_code", "http_code"),
    *("envoy_response_code", "envoy_response_code_class", "code_class", "status_class"),
)
"""How exporters spell the status of an answer."""


class StatusClass(StrEnum):
    """What became of a request, by the status of its answer."""

    OK = "ok"
    REFUSED = "refused"
    """4xx."""
    FAILED = "failed"
    """5xx."""


_SPELLINGS: tuple[Mapping[StatusClass, tuple[str, ...]], ...] = (
    {
        StatusClass.OK: ("200", "201"),
        StatusClass.REFUSED: ("400", "404", "429"),
        StatusClass.FAILED: ("500", "502", "503", "504"),
    },
    {StatusClass.OK: ("2xx",), StatusClass.REFUSED: ("4xx",), StatusClass.FAILED: ("5xx",)},
    {StatusClass.OK: ("2",), StatusClass.REFUSED: ("4",), StatusClass.FAILED: ("5",)},
)
"""As whole codes, as classes, and as Envoy's classes."""


class EvidenceQuery(Value):
    """A query that somebody decides on."""

    asked_by: str
    """Such as `gate errors` or `AnalysisTemplate support-llm-availability`."""
    query: str
    """PromQL without any place left open."""
    silent_without_traffic: bool = False
    """Whether no answer is an answer that the one who asks can deal with."""


class QueryResult(Value):
    """What the region's Prometheus said."""

    question: EvidenceQuery
    samples: tuple[float, ...] = ()
    unknown: tuple[str, ...] = ()
    """Metrics in the query of which Prometheus has no series at all; looked up only when there are no samples."""
    refused: str = ""
    """Its own words when it cannot evaluate the query."""


class MetricSelector(Value):
    """One metric that a query reads, with its condition on an answer's status, if any."""

    metric: str
    status: tuple[tuple[str, str], ...] = ()
    """Operator and value of each condition."""

    @property
    def kinds(self) -> frozenset[StatusClass]:
        """The answers that it counts, in the first spelling in which it tells some from others; else all."""
        for spelling in _SPELLINGS:
            taken = frozenset(kind for kind, codes in spelling.items() if any(map(self._takes, codes)))
            if taken and taken != frozenset(StatusClass):
                return taken
        return frozenset(StatusClass)

    def _takes(self, code: str) -> bool:
        return all(_holds(*condition, code) for condition in self.status)


def selectors_of(query: str) -> tuple[MetricSelector, ...]:
    """What a query reads, each metric as often as it stands there; nothing when it is no PromQL."""
    found: list[MetricSelector] = []

    def see(node: promql.Expr) -> bool:
        if isinstance(node, promql.VectorSelector):
            found.append(_selector(node))
        return True

    try:
        promql.walk(promql.parse(without_raw_strings(query)), see)
    except ValueError:
        return ()
    return tuple(found)


def metrics_of(query: str) -> tuple[str, ...]:
    """The names of the metrics that a query reads, each once."""
    return tuple(dict.fromkeys(selector.metric for selector in selectors_of(query) if selector.metric))


def counts_failures(query: str) -> bool:
    """Whether it tells answers 5xx from good ones."""
    return any((StatusClass.FAILED in kinds) != (StatusClass.OK in kinds) for kinds in _kinds(query))


def counts_refusals(query: str) -> bool:
    """Whether it tells answers 4xx from good ones: by counting them, or by counting the good ones alone.

    A count of everything but 4xx, good and bad, leaves them out.
    """
    seeing = ({StatusClass.OK}, {StatusClass.REFUSED}, {StatusClass.REFUSED, StatusClass.FAILED})
    return any(kinds in seeing for kinds in _kinds(query))


def _kinds(query: str) -> list[frozenset[StatusClass]]:
    """Of each part of a query that has a condition on the status."""
    return [selector.kinds for selector in selectors_of(query) if selector.status]


def _selector(node: promql.VectorSelector) -> MetricSelector:
    matchers = [(matcher.name, str(matcher.op), matcher.value) for matcher in node.matchers.matchers]
    named = next((value for name, _, value in matchers if name == "__name__"), "")
    status = tuple((_operator(op), value) for name, op, value in matchers if name in STATUS_LABELS)
    return MetricSelector(metric=node.name or named, status=status)


def _operator(op: str) -> str:
    return {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}.get(op.removeprefix("MatchOp."), op)


def _holds(op: str, value: str, code: str) -> bool:
    """Whether a label with the value `code` passes the condition, as Prometheus would decide."""
    if op.endswith("~"):
        try:
            same = re.fullmatch(value, code) is not None
        except re.error:
            return False
    else:
        same = value == code
    return same is not op.startswith("!")


TOLERATED = 0.2
"""Of the interval: a scrape that came late, or was missed, is no other interval."""


class ScrapeInterval(Value):
    """What is asked, and what the answer should be."""

    query: str
    """PromQL: seconds between two samples, the longest of all engines; NaN or nothing before there are two."""
    interval: timedelta
    """As the spec has it."""
    look: timedelta
    """Between two batches of evidence."""

    def seen(self, samples: Sequence[float]) -> timedelta | None:
        """The interval in an answer; None when there is no engine yet, or one that was scraped once."""
        known = [seconds for seconds in samples if math.isfinite(seconds) and seconds > 0]
        return timedelta(seconds=round(max(known), 1)) if known else None

    def differs(self, seen: timedelta) -> bool:
        """Whether that is another interval than the spec's."""
        return abs(seen - self.interval) > TOLERATED * self.interval

    def told(self, seen: timedelta) -> str:
        """Both, and what a look has of it."""
        in_look = format_duration(self.look)
        return (
            f"Prometheus scrapes engines every {format_duration(seen)}, and `metrics.scrape_interval` is "
            f"{format_duration(self.interval)}: a look of {in_look} has {_scrapes(self.look / seen)} of each"
        )


def _scrapes(number: float) -> str:
    return f"{number:.0f} scrapes" if number >= 1.5 else "one scrape" if number >= 1 else "not even one scrape"
