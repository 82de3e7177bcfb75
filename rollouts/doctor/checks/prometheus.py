"""Checks of evidence: whether the region's Prometheus answers, and what it says to gates and SLOs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rollouts.doctor.model import Check, Finding, PrometheusTrouble, Severity, Snapshot
from rollouts.doctor.queries import QueryResult, counts_failures, counts_refusals

PROMETHEUS_AWAY = Check(
    code="prometheus-away",
    severity=Severity.ERROR,
    cause="the region's Prometheus does not answer: every gate would end inconclusive",
    remediation="check its address in the spec, and that it runs",
)
CREDENTIAL_MISSING = Check(
    code="prometheus-credential-missing",
    severity=Severity.ERROR,
    cause="what proves to the region's Prometheus who asks is not where the spec says: nobody can ask it anything",
    remediation="set the variable, bring the file, or mount the Secret that the evidence names",
)
CREDENTIAL_REFUSED = Check(
    code="prometheus-credential-refused",
    severity=Severity.ERROR,
    cause="the region's Prometheus does not take the credentials of the spec, or wants some: a token that has ended or "
    "is another's, an account that may not read, or a server with tenants that was told of none",
    remediation="correct `auth` or `tenant` of the region's `prometheus`, or what they name; its own words say which",
)
CERTIFICATE_UNTRUSTED = Check(
    code="prometheus-certificate-untrusted",
    severity=Severity.ERROR,
    cause="nobody whom tidegate trusts signed the certificate of the region's Prometheus, or it is another host's: "
    "nothing is asked, and no credential is sent",
    remediation="name its authority in `ca` of the region's `prometheus`, and ask by a name that the certificate has",
)
TENANT_EMPTY = Check(
    code="prometheus-tenant-empty",
    severity=Severity.ERROR,
    cause="the tenant has no series at all, not even `up`: it is another's name, or engines' metrics are written to "
    "another one. Such a server answers to every name",
    remediation="set `tenant` to the `X-Scope-OrgID` with which the region's metrics are written",
)
QUERY_REFUSED = Check(
    code="query-refused",
    severity=Severity.ERROR,
    cause="Prometheus cannot evaluate the query",
    remediation="correct it; its own words say where",
)
METRIC_UNKNOWN = Check(
    code="metric-unknown",
    severity=Severity.ERROR,
    cause="no target exports this metric, or its exporter is not scraped: the query can never have an answer",
    remediation=(
        "check the name, that the exporter has it (some are for paying users only), and the PodMonitor's labels"
    ),
)
NO_SAMPLES = Check(
    code="query-without-samples",
    severity=Severity.WARNING,
    cause="the metric exists and the query has no answer now: labels that no series has, or no traffic",
    remediation="compare the query's labels with those of the series; send traffic before a delivery",
)
NO_ENGINES_YET = Check(
    code="no-engines-yet",
    severity=Severity.NOTE,
    cause="the first delivery brings the PodMonitor by which engines are scraped, so nobody has series of one yet: "
    "what gates and SLOs ask cannot be tried before",
    remediation="run the doctor again after it",
)
REFUSALS_BLIND = Check(
    code="refusals-not-counted",
    severity=Severity.WARNING,
    cause="errors are answers 5xx only: a version that answers 404 to everybody has 0 % errors and is promoted",
    remediation="count answers 4xx too, next to the errors or among them; tidegate's gate `errors` does",
)
OTHER_INTERVAL = Check(
    code="scrape-interval-differs",
    severity=Severity.WARNING,
    cause="engines are scraped at another interval than the spec says, which is what a look is made for: with fewer "
    "scrapes in it verdicts come later; the one who scrapes more often than rendered is another monitor",
    remediation="apply the PodMonitor that tidegate renders and see that no other one selects these pods, or set "
    "metrics.scrape_interval to what Prometheus does",
)


_BY_TROUBLE = {
    PrometheusTrouble.AWAY: PROMETHEUS_AWAY,
    PrometheusTrouble.CREDENTIAL_MISSING: CREDENTIAL_MISSING,
    PrometheusTrouble.CREDENTIAL_REFUSED: CREDENTIAL_REFUSED,
    PrometheusTrouble.CERTIFICATE_UNTRUSTED: CERTIFICATE_UNTRUSTED,
}


def reachable(snapshot: Snapshot) -> Iterator[Finding]:
    """The region's Prometheus answers the one who asks."""
    problem = snapshot.prometheus_problem
    if problem:
        told = (problem.told, *((_in_a_line(problem.its_words),) if problem.its_words else ()))
        yield _BY_TROUBLE[problem.trouble].found(f"Prometheus of {snapshot.region} does not answer", *told)


def tenant(snapshot: Snapshot) -> Iterator[Finding]:
    """The tenant that is asked for has series."""
    if snapshot.empty_tenant:
        yield TENANT_EMPTY.found(f"Prometheus of {snapshot.region} has nothing of tenant {snapshot.empty_tenant}")


def samples(snapshot: Snapshot) -> Iterator[Finding]:
    """Every query has an answer now, as soon as there is somebody to ask about."""
    silent: list[str] = []
    too_early = snapshot.is_empty or snapshot.is_unwatched
    for answer in snapshot.answers if not snapshot.empty_tenant else ():
        asked = answer.question
        if answer.refused:
            yield QUERY_REFUSED.found(f"{asked.asked_by} asks what Prometheus refuses", asked.query, answer.refused)
        elif not _says_something(answer):
            found = tuple(_silence(answer))
            silent += [asked.asked_by] if found else []
            yield from () if too_early else found
    if silent and too_early:
        askers = ", ".join(dict.fromkeys(silent))
        yield NO_ENGINES_YET.found(f"{len(silent)} queries have no answer yet", f"of {askers}")


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


def _says_something(answer: QueryResult) -> bool:
    return any(not math.isnan(sample) for sample in answer.samples)


def _silence(answer: QueryResult) -> Iterator[Finding]:
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


CHECKS = (
    PROMETHEUS_AWAY,
    CREDENTIAL_MISSING,
    CREDENTIAL_REFUSED,
    CERTIFICATE_UNTRUSTED,
    TENANT_EMPTY,
    QUERY_REFUSED,
    METRIC_UNKNOWN,
    NO_SAMPLES,
    NO_ENGINES_YET,
    REFUSALS_BLIND,
    OTHER_INTERVAL,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    reachable,
    tenant,
    samples,
    refusals,
    interval,
)
