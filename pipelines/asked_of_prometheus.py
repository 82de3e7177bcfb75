"""What the gates and SLOs of a delivery ask a region's Prometheus for, so that somebody can see whether it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gates.adapters.prometheus_api import NAME, selector
from gates.scraped.conventions import HISTOGRAMS, PROCESS_START, UP
from gates.scraped.counting import BY_ENGINE
from pipelines.spec import Delivery
from rollouts.doctor import Question, Scraping
from slo.catalogue import slo_of
from slo.model import WINDOW_PLACE, Events
from slo.spec import CountedBy

WINDOW = "5m"
"""Of every question: as far back as Prometheus itself looks for a sample."""


def asked_of_prometheus(spec: Delivery, region: str) -> tuple[Question, ...]:
    """One question for each count that a gate or an SLO rests on, of all engines of a region together."""
    return (*_gates(spec, region), *_slos(spec))


def scraping_of(spec: Delivery, region: str) -> Scraping:
    """How often the region's engines should be scraped, and the query that tells how often they are.

    It measures from the first to the last sample of each, so that an engine that came a minute ago counts too.
    """
    up = selector({NAME: UP, "service": spec.metadata.name, "region": region})
    times = f"timestamp({up})[{WINDOW}:1s]"
    query = f"max((max_over_time({times}) - min_over_time({times})) / changes({times}))"
    return Scraping(query=query, interval=spec.scrape_interval, look=spec.look)


def _gates(spec: Delivery, region: str) -> Iterator[Question]:
    """Counts of the stable arm, which is there at any time; gates ask for the canary's by the same names."""
    used = {gate for stage in (spec.shadow, spec.canary) if stage for gate in stage.gates}
    stable = {"service": spec.metadata.name, "region": region, "role": "stable"}
    for name in (UP, PROCESS_START):
        yield Question(asked_by="every gate", query=f"count({selector({NAME: name, **stable})})")
    if spec.gates.latency and "latency" in used:
        times = f"{HISTOGRAMS[spec.gates.latency.metric]}_count"
        yield Question(asked_by="gate latency", query=_some({NAME: times, **stable}))
    if spec.gates.errors and "errors" in used:
        answers = {NAME: BY_ENGINE.responses, **stable, "method": "POST"}
        yield Question(asked_by="gate errors", query=_some(answers))
        # Before the first answer 4xx there is no series of them.
        refused = _some({**answers, BY_ENGINE.status: "4xx"})
        yield Question(asked_by="gate errors, answers 4xx", query=refused, silent_without_traffic=True)


def _some(labels: Mapping[str, str]) -> str:
    return f"sum(increase({selector(labels)}[{WINDOW}])) > 0"


def _slos(spec: Delivery) -> Iterator[Question]:
    for item in spec.slos:
        # In a cluster it is the engines that are scraped, whoever routes to them.
        sli = slo_of(item, service=spec.metadata.name, counted_by=CountedBy.ENGINE).sli
        query = sli.total_query if isinstance(sli, Events) else sli.error_ratio_query
        yield Question(asked_by=f"SLO {item.name}", query=WINDOW_PLACE.sub(WINDOW, query))
