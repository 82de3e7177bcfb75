"""Queries of gates and SLOs: what they read from Prometheus, whether it has that, and how often it scrapes engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import promql_parser as promql

from tidegate.core.metrics import without_raw_strings
from tidegate.core.model import Value


class PrometheusReader(Protocol):
    """A region's Prometheus."""

    async def ask(self, query: str) -> tuple[float, ...]:
        """The samples of an instant query now; none when no series answers it.

        Raises:
            PrometheusRefused: when Prometheus cannot evaluate it.
            PrometheusUnreachable, CredentialMissing: when it does not answer, or cannot be asked.
        """
        ...


class EvidenceQuery(Value):
    """A query that somebody decides on."""

    asked_by: str
    """Such as `gate errors` or `SLO availability`."""
    query: str
    """PromQL without any place left open."""


class QueryResult(Value):
    """What the region's Prometheus said."""

    question: EvidenceQuery
    samples: tuple[float, ...] = ()
    unknown: tuple[str, ...] = ()
    """Metrics in the query of which Prometheus has no series at all; looked up only when there are no samples."""
    refused: str = ""
    """Its own words when it cannot evaluate the query."""


def metrics_of(query: str) -> tuple[str, ...]:
    """The names of the metrics that a query reads, each once; none when it is no PromQL."""
    found: dict[str, None] = {}

    def see(node: promql.Expr) -> bool:
        if isinstance(node, promql.VectorSelector):
            labels = {matcher.name: matcher.value for matcher in node.matchers.matchers}
            found[node.name or labels.get("__name__", "")] = None
        return True

    try:
        promql.walk(promql.parse(without_raw_strings(query)), see)
    except ValueError:
        return ()
    return tuple(filter(None, found))


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
