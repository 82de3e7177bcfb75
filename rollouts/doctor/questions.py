"""Queries of gates and SLOs: what they ask Prometheus for, and whether it has that."""

from __future__ import annotations

import re
from collections.abc import Iterator

import promql_parser as promql

from tidegate.core.model import Value

STATUS_LABELS = (
    *("code", "status", "status_code", "http_status_code", "response_code", "http_code"),
    *("envoy_response_code", "envoy_response_code_class", "code_class", "status_class"),
)
"""How exporters spell the status of an answer."""

_SPELLINGS = {"ok": ("200", "2xx", "2"), "refused": ("404", "4xx", "4"), "failed": ("500", "5xx", "5")}
"""One answer of each class, as a whole code, as a class, and as Envoy's class."""


class Question(Value):
    """A query that somebody decides on."""

    asked_by: str
    """Such as `gate errors` or `AnalysisTemplate support-llm-availability`."""
    query: str
    """PromQL without any place left open."""
    silent_without_traffic: bool = False
    """Whether no answer is an answer that whoever asks can deal with."""


class Answer(Value):
    """What the region's Prometheus said."""

    question: Question
    samples: tuple[float, ...] = ()
    unknown: tuple[str, ...] = ()
    """Metrics in the query of which Prometheus has no series at all; looked up only when there are no samples."""
    refused: str = ""
    """Its own words when it cannot evaluate the query."""


class Selector(Value):
    """One metric that a query reads, with its condition on an answer's status, if any."""

    metric: str
    status: tuple[tuple[str, str], ...] = ()
    """Operator and value of each condition."""

    def takes(self, kind: str) -> bool:
        """Whether it counts answers of that class: ok, refused (4xx), failed (5xx)."""
        return any(all(_holds(*condition, code) for condition in self.status) for code in _SPELLINGS[kind])


def selectors_of(query: str) -> tuple[Selector, ...]:
    """What a query reads, each metric as often as it stands there; nothing when it is no PromQL."""
    found: list[Selector] = []

    def see(node: promql.Expr) -> bool:
        if isinstance(node, promql.VectorSelector):
            found.append(_selector(node))
        return True

    try:
        promql.walk(promql.parse(query), see)
    except ValueError:
        return ()
    return tuple(found)


def metrics_of(query: str) -> tuple[str, ...]:
    """The names of the metrics that a query reads, each once."""
    return tuple(dict.fromkeys(selector.metric for selector in selectors_of(query) if selector.metric))


def counts_failures(query: str) -> bool:
    """Whether it tells answers 5xx from good ones."""
    return any(selector.takes("failed") and not selector.takes("ok") for selector in _by_status(query))


def counts_refusals(query: str) -> bool:
    """Whether it tells answers 4xx from good ones: by counting them, or by counting the good ones alone."""
    return any(
        selector.takes("refused") != selector.takes("ok") and not (selector.takes("ok") and selector.takes("failed"))
        for selector in _by_status(query)
    )


def _by_status(query: str) -> Iterator[Selector]:
    return (selector for selector in selectors_of(query) if selector.status)


def _selector(node: promql.VectorSelector) -> Selector:
    matchers = [(matcher.name, str(matcher.op), matcher.value) for matcher in node.matchers.matchers]
    named = next((value for name, _, value in matchers if name == "__name__"), "")
    status = tuple((_operator(op), value) for name, op, value in matchers if name in STATUS_LABELS)
    return Selector(metric=node.name or named, status=status)


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
