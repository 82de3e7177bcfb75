"""Whether there is evidence to decide on: samples now, and answers 4xx among them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot
from rollouts.doctor.questions import Answer, counts_failures, counts_refusals

PROMETHEUS_AWAY = Ailment(
    code="prometheus-away",
    severity=Severity.ERROR,
    cause="the region's Prometheus does not answer: every gate would end inconclusive",
    cure="check its address in the spec, and that it runs",
)
QUERY_REFUSED = Ailment(
    code="query-refused",
    severity=Severity.ERROR,
    cause="Prometheus cannot evaluate the query",
    cure="correct it; its own words say where",
)
METRIC_UNKNOWN = Ailment(
    code="metric-unknown",
    severity=Severity.ERROR,
    cause="nobody exports a metric of this name, or nothing scrapes who does: the query can never have an answer",
    cure="check the name, that the exporter has it (some are for paying users only), and the PodMonitor's labels",
)
NO_SAMPLES = Ailment(
    code="query-without-samples",
    severity=Severity.WARNING,
    cause="the metric exists and the query has no answer now: labels that no series has, or no traffic",
    cure="compare the query's labels with those of the series; send traffic before a delivery",
)
REFUSALS_BLIND = Ailment(
    code="refusals-not-counted",
    severity=Severity.WARNING,
    cause="errors are answers 5xx only: a version that answers 404 to everybody has 0 % errors and is promoted",
    cure="count answers 4xx too, beside the errors or among them; tidegate's gate `errors` does",
)
OTHER_INTERVAL = Ailment(
    code="scrape-interval-differs",
    severity=Severity.WARNING,
    cause="engines are scraped at another interval than the spec says, which is what a look is made for: with fewer "
    "scrapes in it verdicts come later; whoever scrapes more often than rendered is another monitor",
    cure="apply the PodMonitor that tidegate renders and see that no other one selects these pods, or set "
    "metrics.scrape_interval to what Prometheus does",
)
AILMENTS = (PROMETHEUS_AWAY, QUERY_REFUSED, METRIC_UNKNOWN, NO_SAMPLES, REFUSALS_BLIND, OTHER_INTERVAL)


def reachable(snapshot: Snapshot) -> Iterator[Finding]:
    """The region's Prometheus answers."""
    if snapshot.prometheus_problem:
        yield PROMETHEUS_AWAY.found(f"Prometheus of {snapshot.region} does not answer", snapshot.prometheus_problem)


def samples(snapshot: Snapshot) -> Iterator[Finding]:
    """Every query has an answer now."""
    for answer in snapshot.answers:
        asked = answer.question
        if answer.refused:
            yield QUERY_REFUSED.found(f"{asked.asked_by} asks what Prometheus refuses", asked.query, answer.refused)
        elif not _says_something(answer):
            yield from _silence(answer)


def refusals(snapshot: Snapshot) -> Iterator[Finding]:
    """Where answers 5xx are counted, somebody counts 4xx."""
    queries = {answer.question.query: answer.question.asked_by for answer in snapshot.answers}
    failures = [query for query in queries if counts_failures(query)]
    if failures and not any(counts_refusals(query) for query in queries):
        yield REFUSALS_BLIND.found(
            "no query counts answers 4xx", *(f"{queries[query]}: {_in_a_line(query)}" for query in failures)
        )


def interval(snapshot: Snapshot) -> Iterator[Finding]:
    """Engines are scraped as often as the spec says."""
    scraping, seen = snapshot.scraping, snapshot.scraped_every
    if scraping and seen and scraping.differs(seen):
        yield OTHER_INTERVAL.found(f"{snapshot.region}: {scraping.told(seen)}", _in_a_line(scraping.query))


def _says_something(answer: Answer) -> bool:
    return any(not math.isnan(sample) for sample in answer.samples)


def _silence(answer: Answer) -> Iterator[Finding]:
    asked = answer.question
    if answer.unknown:
        yield METRIC_UNKNOWN.found(
            f"{asked.asked_by} asks for {', '.join(answer.unknown)}, of which there is no series",
            _in_a_line(asked.query),
        )
    elif not asked.silent_without_traffic:
        said = "NaN" if answer.samples else "nothing"
        yield NO_SAMPLES.found(f"{asked.asked_by} has no samples now: the answer is {said}", _in_a_line(asked.query))


def _in_a_line(query: str) -> str:
    return " ".join(query.split())


CHECKS = (reachable, samples, refusals, interval)
