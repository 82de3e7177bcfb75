"""What the gates and SLOs of a delivery ask a region's Prometheus for, so that somebody can see whether it answers."""

from __future__ import annotations

from collections.abc import Iterator

from gates.scraped.conventions import HISTOGRAMS, RESPONSE_CODE, RESPONSES
from pipelines.spec import Delivery
from rollouts.doctor import Question
from slo.catalogue import slo_of
from slo.model import WINDOW_PLACE, Events
from slo.spec import CountedBy

WINDOW = "5m"
"""Of every question: as far back as Prometheus itself looks for a sample."""


def asked_of_prometheus(spec: Delivery, region: str) -> tuple[Question, ...]:
    """One question for each count that a gate or an SLO rests on, of all engines of a region together."""
    return (*_gates(spec, region), *_slos(spec))


def _gates(spec: Delivery, region: str) -> Iterator[Question]:
    used = {gate for stage in (spec.shadow, spec.canary) if stage for gate in stage.gates}
    here = f'region="{region}"'
    if spec.gates.latency and "latency" in used:
        times = HISTOGRAMS[spec.gates.latency.metric]
        yield Question(asked_by="gate latency", query=f"sum(increase({times}_count{{{here}}}[{WINDOW}])) > 0")
    if spec.gates.errors and "errors" in used:
        counted = f"sum(increase({RESPONSES}{{{here}}}[{WINDOW}])) > 0"
        yield Question(asked_by="gate errors", query=counted)
        # No answer 4xx yet is no series yet.
        refused = f'sum(increase({RESPONSES}{{{here},{RESPONSE_CODE}=~"4.."}}[{WINDOW}]))'
        yield Question(asked_by="gate errors, answers 4xx", query=refused, silent_without_traffic=True)


def _slos(spec: Delivery) -> Iterator[Question]:
    for item in spec.slos:
        # In a cluster it is the engines that are scraped, whoever routes to them.
        sli = slo_of(item, service=spec.metadata.name, counted_by=CountedBy.ENGINE).sli
        query = sli.total_query if isinstance(sli, Events) else sli.error_ratio_query
        yield Question(asked_by=f"SLO {item.name}", query=WINDOW_PLACE.sub(WINDOW, query))
