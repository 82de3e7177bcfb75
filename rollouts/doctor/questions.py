"""Queries of gates and SLOs: what they ask Prometheus for, and whether it has that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import promql_parser as promql

from tidegate.core.model import Value

STATUS_LABELS = (
    *("code", "status", "status_code", "http_status_code", "response_code", "http_code"),
    *("envoy_response_code", "envoy_response_code_class", "code_class", "status_class"),
)
"""How exporters spell the status of an answer."""


class Kind(StrEnum):
    """What became of a request, by the status of its answer."""

    OK = "ok"
    REFUSED = "refused"
    """4xx."""
    FAILED = "failed"
    """5xx."""


_SPELLINGS: tuple[Mapping[Kind, tuple[str, ...]], ...] = (
    {Kind.OK: ("200", "201"), Kind.REFUSED: ("400", "404", "429"), Kind.FAILED: ("500", "502", "503", "504")},
    {Kind.OK: ("2xx",), Kind.REFUSED: ("4xx",), Kind.FAILED: ("5xx",)},
    {Kind.OK: ("2",), Kind.REFUSED: ("4",), Kind.FAILED: ("5",)},
)
"""As whole codes, as classes, and as Envoy's classes."""


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

    @property
    def kinds(self) -> frozenset[Kind]:
        """The answers that it counts, in the first spelling in which it tells some from others; else all."""
        for spelling in _SPELLINGS:
            taken = frozenset(kind for kind, codes in spelling.items() if any(map(self._takes, codes)))
            if taken and taken != frozenset(Kind):
                return taken
        return frozenset(Kind)

    def _takes(self, code: str) -> bool:
        return all(_holds(*condition, code) for condition in self.status)


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
    return any((Kind.FAILED in kinds) != (Kind.OK in kinds) for kinds in _kinds(query))


def counts_refusals(query: str) -> bool:
    """Whether it tells answers 4xx from good ones: by counting them, or by counting the good ones alone.

    A count of everything but 4xx, good and bad, leaves them out.
    """
    seeing = ({Kind.OK}, {Kind.REFUSED}, {Kind.REFUSED, Kind.FAILED})
    return any(kinds in seeing for kinds in _kinds(query))


def _kinds(query: str) -> list[frozenset[Kind]]:
    """Of each part of a query that has a condition on the status."""
    return [selector.kinds for selector in selectors_of(query) if selector.status]


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
