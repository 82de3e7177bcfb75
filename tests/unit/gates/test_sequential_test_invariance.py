"""What must not matter to a verdict does not: order, names, who bins the times, how a stream is cut, a replay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pytest
from alike import long
from fakes.metrics.samples import Serving, in_buckets, traffic

from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import Batch, PodEvidence
from gates.model import GateOutcome, Verdict
from gates.sequential_test import AnalysisPlan, SequentialTest

TERMS = AnalysisPlan(
    latency=LatencyGate(max_increase=0.3),
    errors=ErrorsGate(max_increase=0.02),
    judge=ScoresGate(max_drop=0.1),
    sources={"judge": ("users",)},
)
STABLE = Serving(180, pods=4, scored=0.1)
CLEAR = {
    "healthy": (Serving(20, scored=0.5), [GateOutcome.PASS] * 3),
    "slow": (Serving(20, scored=0.5, ttft=0.4), [GateOutcome.FAIL, GateOutcome.PASS, GateOutcome.PASS]),
    "failing": (Serving(20, scored=0.5, failing=0.08), [GateOutcome.PASS, GateOutcome.FAIL, GateOutcome.PASS]),
    "worse": (Serving(20, scored=0.5, score=0.5), [GateOutcome.PASS, GateOutcome.PASS, GateOutcome.FAIL]),
}
EVIDENCE = ("evidence_worse", "evidence_fine")


def judged(batches: Iterable[Batch], terms: AnalysisPlan = TERMS) -> tuple[Verdict, ...]:
    trial = SequentialTest(terms)
    for batch in batches:
        trial.take(batch)
    return trial.verdicts(deadline_passed=True)


def outcomes(batches: Iterable[Batch], terms: AnalysisPlan = TERMS) -> list[GateOutcome]:
    return [verdict.outcome for verdict in judged(batches, terms)]


def log_evidence(verdicts: Iterable[Verdict]) -> list[float]:
    return [float(np.log(verdict.numbers[name])) for verdict in verdicts for name in EVIDENCE]


def shuffled(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Pods in another order each time; the canary's one place is of no account either."""
    rng = np.random.default_rng(9)
    for batch in batches:
        yield batch.model_copy(update={"arms": tuple(batch.arms[each] for each in rng.permutation(len(batch.arms)))})


def test_the_order_of_pods_does_not_matter_to_counts() -> None:
    terms = AnalysisPlan.model_validate({**TERMS.model_dump(), "judge": None})
    found = judged(traffic(Serving(20), STABLE, looks=20), terms)
    again = judged(shuffled(traffic(Serving(20), STABLE, looks=20)), terms)
    assert [verdict.outcome for verdict in again] == [verdict.outcome for verdict in found]
    assert log_evidence(again) == pytest.approx(log_evidence(found), abs=1e-6)


def split(pod: PodEvidence) -> list[PodEvidence]:
    """One pod's counts as those of two."""
    half = {name: getattr(pod, name) // 2 for name in ("requests", "errors", "refused")}
    rest = {name: getattr(pod, name) - half[name] for name in half}
    at = len(pod.ttft) // 2
    return [
        pod.model_copy(update={"pod": pod.pod + "a", "ttft": pod.ttft[:at], **half}),
        pod.model_copy(update={"pod": pod.pod + "b", "ttft": pod.ttft[at:], **rest}),
    ]


def test_without_tempering_it_does_not_matter_which_pod_of_an_arm_served() -> None:
    terms = AnalysisPlan.model_validate({**TERMS.model_dump(), "judge": None, "temper": False})
    whole = list(traffic(Serving(20), STABLE, looks=20))
    parts = [
        batch.model_copy(update={"arms": tuple(part for pod in batch.arms for part in split(pod))}) for batch in whole
    ]
    assert log_evidence(judged(parts, terms)) == pytest.approx(log_evidence(judged(whole, terms)), abs=1e-9)


def joined(batches: list[Batch]) -> Iterator[Batch]:
    """Every two batches as one."""
    for first, second in zip(batches[::2], batches[1::2], strict=True):
        arms = []
        for one, other in zip(first.arms, second.arms, strict=True):
            sums = {name: getattr(one, name) + getattr(other, name) for name in ("requests", "errors", "refused")}
            arms.append(
                other.model_copy(update={**sums, "ttft": one.ttft + other.ttft, "scores": one.scores + other.scores})
            )
        yield Batch(time=second.time, arms=tuple(arms))


@pytest.mark.parametrize("case", ["healthy", long("slow"), "failing", "worse"])
def test_clear_verdicts_do_not_depend_on_how_often_we_look(case: str) -> None:
    canary, expected = CLEAR[case]
    fine = list(traffic(canary, STABLE, looks=96, seconds=5))
    coarse = list(joined(fine))
    assert outcomes(fine) == outcomes(coarse) == outcomes(joined(coarse)) == expected


@pytest.mark.parametrize("case", ["healthy", "slow", long("failing"), long("worse")])
def test_buckets_and_samples_agree_on_clear_cases(case: str) -> None:
    canary, expected = CLEAR[case]
    # A margin that the buckets can tell: from 0.5 s, where the p95 lies, to the next edge.
    terms = AnalysisPlan.model_validate({**TERMS.model_dump(), "latency": LatencyGate(max_increase=0.6)})
    samples = list(traffic(canary, STABLE, looks=60))
    assert outcomes(samples, terms) == outcomes(map(in_buckets, samples), terms) == expected


def test_a_healthy_arm_may_bring_more_traffic_at_any_time() -> None:
    """Shares of traffic change from stage to stage: nothing is pooled over them."""
    stages = [(5, 195), (50, 150), (100, 100)]
    batches = []
    for number, (canary, stable) in enumerate(stages):
        # Load makes everybody slower, and fail more.
        both = {"ttft": 0.2 * (number + 1), "failing": 0.005 * (number + 1)}
        for batch in traffic(Serving(canary, **both), Serving(stable, pods=4, **both), looks=30, seed=number):
            batches.append(batch.model_copy(update={"time": batch.time + 300 * number}))
    assert all(early.time < late.time for early, late in pairwise(batches))
    assert (
        outcomes(batches, AnalysisPlan.model_validate({**TERMS.model_dump(), "judge": None})) == [GateOutcome.PASS] * 2
    )
