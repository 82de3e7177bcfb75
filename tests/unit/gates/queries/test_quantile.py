"""A quantile of any histogram: the same test as of latency; bounds, plans, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes.metrics.asked import plan_of, refusal_of

from gates.analyses.latency import LatencyGate, LatencyTest
from gates.analyses.quantile import QuantileGate, QuantileTest
from gates.evidence.batch import ArmName, Batch, Buckets, PodEvidence, PodHistogram
from gates.planning.forecast import forecasts
from gates.traffic import Exposure

BUCKETS = 'tool_seconds_bucket{version="{{.version}}"}'
TOOL: dict[str, Any] = {"kind": "quantile", "buckets": BUCKETS, "unit": "s", "max_increase": "50%"}
EDGES = tuple(0.05 * 1.4**step for step in range(16))


def histogram(rng: np.random.Generator, count: int, slower: float) -> Buckets:
    found = np.bincount(np.searchsorted(EDGES, rng.lognormal(-1, 0.5, count) * slower), minlength=len(EDGES) + 1)
    return Buckets(edges=EDGES, counts=tuple(int(each) for each in found))


def batch_of(rng: np.random.Generator, look: int, slower: float) -> Batch:
    drift = 1 + 0.3 * np.sin(look / 15)
    arms = [(ArmName.STABLE, "a", 60, 1.0), (ArmName.STABLE, "b", 60, 1.0), (ArmName.CANARY, "c", 15, slower)]
    pods = tuple(
        PodHistogram(arm=arm, pod=pod, buckets=histogram(rng, int(rng.poisson(count)), factor * drift))
        for arm, pod, count, factor in arms
    )
    return Batch(time=10.0 * look, source="proxy", histograms={"tool": pods})


def test_it_is_the_very_test_of_latency() -> None:
    given = {name: each for name, each in TOOL.items() if name != "kind"}
    ours = QuantileTest(QuantileGate.model_validate(given), "tool", temper=True)
    theirs = LatencyTest(LatencyGate(max_increase=0.5), temper=True)
    rng = np.random.default_rng(2)
    for look in range(1, 9):
        batch = batch_of(rng, look, 1.3)
        arms = tuple(PodEvidence(arm=pod.arm, pod=pod.pod, ttft=pod.buckets) for pod in batch.histograms["tool"])
        ours.take(batch, 10)
        theirs.take(Batch(time=batch.time, arms=arms), 10)
        assert (ours.log_worse, ours.log_fine, ours.seen) == (theirs.log_worse, theirs.log_fine, theirs.seen)
    assert ours.log_worse != 0


def test_a_plan_counts_in_requests_of_users() -> None:
    def needs(**settings: object) -> int | None:
        terms = plan_of({"tool": {**TOOL, **settings}}, share=0.2)
        (told,) = forecasts(terms, Exposure(requests_per_second=20, percent=10, within_seconds=36000))
        assert (told.gate, told.scale) == ("tool", "change")
        return told.canary_requests_to_pass

    often, rarely = needs(), needs(per_request=0.1)
    assert often and rarely and 5 < rarely / often < 15


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"buckets": 'tool_seconds{version="{{.version}}"}'}, "the _bucket series of a classic histogram"),
        ({"buckets": 'tool_seconds_bucket{le="1",version="{{.version}}"}'}, "all buckets, without a label le"),
        ({"buckets": 'tool_seconds_bucket{le="1"}'}, "a label that tells the arms apart"),
        ({"tolerance": "50%"}, "found 50%; expected less than max_increase, 50%"),
    ],
)
def test_what_is_no_histogram_is_refused(changed: dict[str, Any], problem: str) -> None:
    assert problem in refusal_of({**TOOL, **changed})
