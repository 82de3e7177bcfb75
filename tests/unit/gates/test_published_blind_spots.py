"""What users reported that Kayenta let pass, judged by ours with default terms.

Each published array is one number a minute. Our judge reads requests, so each point is given requests: of
latency, so many whose median is the point (0.1 s for 1.0); of errors, so many of which the point's share fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from benchmarks.canary_simulation.kayenta import Classification, classify
from gates.analyses.errors import ErrorsGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import ArmName, Batch, PodEvidence
from gates.model import GateOutcome, Verdict
from gates.sequential_test import AnalysisPlan, SequentialTest

LATENCY, ERRORS = AnalysisPlan(latency=LatencyGate()), AnalysisPlan(errors=ErrorsGate())
CALM = [1.0] * 10
SEVEN_OF_TEN = [100.0] * 7 + [1.0] * 3
"""spinnaker/kayenta#780, continued as spinnaker/spinnaker#6278: "in my eyes, this should fail"."""
SPARSE_ERRORS = [0, 0.048, 0, 0.18, 0.089, 0, 0.098, 0.035, 0, 0]
"""spinnaker/spinnaker#5622, of the same kind as spinnaker/kayenta#426: the control had no error at all."""
ONE_SPIKE, STEADY = [0.9, 1.0, 40.0, 1.1, 0.95, 1.05], [1.0, 0.9, 1.1, 1.0, 1.05, 0.95]
"""+650 % of few points, as in spinnaker/kayenta#633; the numbers are ours, the issue has pictures only."""
FOUR_ERRORS = [each / 50 for each in (0, 1, 0, 1, 0, 0, 1, 0, 1, 0)]


def slow(arm: ArmName, median: float, requests: int, rng: np.random.Generator) -> PodEvidence:
    return PodEvidence(arm=arm, requests=requests, ttft=tuple(rng.lognormal(np.log(0.1 * median), 0.5, requests)))


def failing(arm: ArmName, share: float, requests: int, _: np.random.Generator) -> PodEvidence:
    return PodEvidence(arm=arm, requests=requests, errors=round(share * requests))


def minutes(
    canary: Sequence[float], stable: Sequence[float], requests: tuple[int, int], terms: AnalysisPlan
) -> Iterator[Batch]:
    rng = np.random.default_rng(1)
    served = slow if terms is LATENCY else failing
    for minute, points in enumerate(zip(canary, stable, strict=True), start=1):
        arms = zip((ArmName.CANARY, ArmName.STABLE), points, requests, strict=True)
        yield Batch(time=60 * minute, arms=tuple(served(*each, rng) for each in arms))


def judged(terms: AnalysisPlan, canary: Sequence[float], stable: Sequence[float], requests: tuple[int, int]) -> Verdict:
    trial = SequentialTest(terms)
    for batch in minutes(canary, stable, requests, terms):
        trial.take(batch)
    (verdict,) = trial.verdicts(deadline_passed=True)
    return verdict


@pytest.mark.parametrize(
    ("stable", "canary"),
    [(CALM, SEVEN_OF_TEN), (STEADY, ONE_SPIKE), ([0.0] * 10, SPARSE_ERRORS), ([0.0] * 10, FOUR_ERRORS)],
)
def test_kayenta_lets_all_of_them_pass(stable: list[float], canary: list[float]) -> None:
    assert classify(np.asarray(stable), np.asarray(canary, dtype=np.float64)) is Classification.PASS


@pytest.mark.parametrize(
    ("terms", "canary", "stable", "requests"),
    [
        (LATENCY, SEVEN_OF_TEN, CALM, [(10, 10), (10, 190)]),
        (LATENCY, ONE_SPIKE, STEADY, [(20, 20), (10, 190)]),
        (ERRORS, SPARSE_ERRORS, [0.0] * 10, [(50, 50), (20, 380)]),
        (ERRORS, FOUR_ERRORS, [0.0] * 10, [(50, 950)]),
    ],
)
def test_all_are_caught_with_so_few_requests_a_minute(
    terms: AnalysisPlan, canary: list[float], stable: list[float], requests: list[tuple[int, int]]
) -> None:
    assert {judged(terms, canary, stable, each).outcome for each in requests} == {GateOutcome.FAIL}


def test_four_errors_against_equal_traffic_are_too_few_to_fail_and_never_a_pass() -> None:
    verdict = judged(ERRORS, FOUR_ERRORS, [0.0] * 10, (50, 50))
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert "4 of 500" in verdict.reason


def test_five_requests_a_minute_are_too_few_to_say_anything() -> None:
    assert judged(LATENCY, SEVEN_OF_TEN, CALM, (5, 5)).outcome is GateOutcome.INCONCLUSIVE
