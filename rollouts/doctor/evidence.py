"""Checks of evidence: whether the region's Prometheus answers, and what it says to gates and SLOs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rollouts.doctor.model import Observation, Snapshot, error, warning
from rollouts.doctor.queries import QueryResult
from tidegate.core.model import Json
from tidegate.core.units import format_duration


@error(
    "prometheus-away",
    cause="the region's Prometheus does not answer, or its certificate is not trusted: no gate could decide",
    remediation="check its address and `ca` in the spec, and that it runs",
)
def _prometheus_away(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    if snapshot.away:
        yield f"Prometheus of {snapshot.target.region} does not answer", *snapshot.away


@error(
    "prometheus-credential",
    cause="the credential is not where the spec says, or the region's Prometheus does not take it: an expired "
    "token, an account without the right to query, or a server that expects a tenant",
    remediation="set the variable, mount the file or Secret, or correct `auth` or `tenant` of the region's "
    "`prometheus`; the evidence says which",
)
def _prometheus_credential(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    if snapshot.credential:
        yield f"Prometheus of {snapshot.target.region} cannot be queried with these credentials", *snapshot.credential


@error(
    "query-refused",
    cause="Prometheus cannot evaluate the query",
    remediation="correct it; its own words say where",
)
def _query_refused(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for answer in snapshot.answers:
        if answer.refused:
            asked = answer.question
            yield f"Prometheus refuses the query of {asked.asked_by}", asked.query, answer.refused


def unanswered(snapshot: Snapshot) -> list[QueryResult]:
    """Queries without a sample."""
    return [each for each in snapshot.answers if not each.refused and all(map(math.isnan, each.samples))]


@error(
    "metric-unknown",
    cause="no target exports this metric, its exporter is not scraped, or `tenant` names another's series: the "
    "query can never have an answer",
    remediation="check the name, that the exporter has it (some are for paying users only), the PodMonitor's "
    "labels, and `tenant`",
)
def _metric_unknown(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for answer in () if snapshot.is_empty else unanswered(snapshot):
        if answer.unknown:
            asked, names = answer.question, ", ".join(answer.unknown)
            yield f"{asked.asked_by} asks for {names}, of which there is no series", asked.query


@warning(
    "query-without-samples",
    cause="the metric exists and the query has no answer now: labels that no series has, or no traffic",
    remediation="compare the query's labels with those of the series; send traffic before a delivery",
)
def _query_without_samples(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for answer in () if snapshot.is_empty else unanswered(snapshot):
        if not answer.unknown:
            said = "NaN" if answer.samples else "nothing"
            yield f"{answer.question.asked_by} has no samples now: the answer is {said}", answer.question.query


TOLERATED = 0.2
"""Of the interval: a scrape that came late, or was missed, is no other interval."""


@warning(
    "scrape-interval-differs",
    cause="engines are scraped at another interval than the spec says: a look has fewer scrapes in it and verdicts "
    "come later, or a second monitor scrapes them more often",
    remediation="apply the PodMonitor that tidegate renders and see that no other one selects these pods, or set "
    "metrics.scrape_interval to what Prometheus does",
)
def _scrape_interval_differs(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    scraping, seen = snapshot.target.scraping, snapshot.scraped_every
    if scraping and seen and abs(seen - scraping.interval) > TOLERATED * scraping.interval:
        said = f"every {format_duration(seen)}, and `metrics.scrape_interval` is {format_duration(scraping.interval)}"
        look = f"a look of {format_duration(scraping.look)} has {scraping.look / seen:.1f} scrapes of each"
        yield f"{snapshot.target.region}: Prometheus scrapes engines {said}: {look}", scraping.query


CHECKS = (
    _prometheus_away,
    _prometheus_credential,
    _query_refused,
    _metric_unknown,
    _query_without_samples,
    _scrape_interval_differs,
)
