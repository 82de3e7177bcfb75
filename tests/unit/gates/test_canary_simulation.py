"""The simulation's engine against the shipped judge: the same evidence from the same counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.canary_simulation import ours
from benchmarks.canary_simulation.samples import Arm as SimulatedArm
from benchmarks.canary_simulation.samples import Grid, Look, Samples
from benchmarks.canary_simulation.scenarios import HIGH
from benchmarks.canary_simulation.workloads import HEALTHY, Regression, Workload
from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import ArmName, Batch, Buckets, PodEvidence
from gates.model import GateOutcome
from gates.sequential_test import AnalysisPlan, SequentialTest, metric_tests

BOTH = AnalysisPlan(latency=LatencyGate(), judge=ScoresGate(max_drop=0.1), sources={"judge": ("users",)})
ERRORS = AnalysisPlan(errors=ErrorsGate(max_increase=0.01))


def batch_of(look: Look, time: float) -> Batch:
    """The only delivery of a look as an adapter would bring it: buckets on the simulation's own grid."""
    sides = ((ArmName.CANARY, look.canary, look.canary_scores), (ArmName.STABLE, look.stable, look.stable_scores))
    pods = [
        evidence(arm, simulated, pod, tuple(scores[0]) if pod == 0 else ())
        for arm, simulated, scores in sides
        for pod in range(simulated.requests.shape[1])
        if simulated.requests.sum()
    ]
    return Batch(time=time, arms=tuple(pods))


def evidence(arm: ArmName, simulated: SimulatedArm, pod: int, scores: tuple[float, ...]) -> PodEvidence:
    cached, whole = (int(each) * (pod == 0) for each in simulated.cached[0])
    return PodEvidence(
        cached_tokens=cached,
        prompt_tokens=whole,
        arm=arm,
        pod=str(pod),
        requests=int(simulated.requests[0, pod]),
        errors=int(simulated.errors[0, pod]),
        ttft=buckets(simulated.ttft, ours.TTFT_GRID, pod),
        scores=scores,
    )


def buckets(samples: Samples, grid: Grid, pod: int) -> Buckets:
    counts = samples.pod_counts(grid)[0, pod].astype(int)
    return Buckets(edges=tuple(np.exp(grid.log_edges)), counts=tuple(counts.tolist()))


@pytest.mark.parametrize(
    ("terms", "metrics", "cached"),
    [(BOTH, ("ttft", "judge"), 0.0), (ERRORS, ("errors",), 0.0), (BOTH, ("ttft", "judge"), 0.2)],
    ids=["latency and judge", "errors", "a cold cache"],
)
@pytest.mark.parametrize(
    ("regression", "outcome"),
    [(HEALTHY, GateOutcome.PASS), (Regression(ttft_factor=1.5, error_factor=6, judge_drop=0.2), GateOutcome.FAIL)],
    ids=["healthy", "worse"],
)
def test_the_simulated_gate_says_what_a_trial_says(
    terms: AnalysisPlan, metrics: tuple[str, ...], cached: float, regression: Regression, outcome: GateOutcome
) -> None:
    """Look by look the same evidence from the same counts, hence the same verdict at the same look."""
    engines = {name: each for name, each in ours.engines(1, ours.Margins(), temper=True).items() if name in metrics}
    gate = ours.Gate("", 1, engines, max_colder=LatencyGate().max_colder if cached else None)
    trial, outcomes = SequentialTest(terms), set[GateOutcome]()
    asked = [question for _, question in metric_tests(terms) if question.kind != "refused"]
    trial.take(Batch(time=1000 - 12 * 10))
    for look in Workload(replace(HIGH, looks=60, warm_up_looks=12, cached=cached), regression, 1, seed=6).looks():
        counted, batch = ours.Counted(look), batch_of(look, look.seconds + 1000)
        gate.feed_counted(counted, look.seconds) if look.share else gate.learn(counted)
        trial.take(batch)
        for question, name in zip(asked, metrics, strict=True):
            question.take(batch, 10)
            said = (question.log_worse, question.log_fine)
            assert said == pytest.approx(
                (float(engines[name].log_worse[0]), float(engines[name].log_fine[0])), abs=1e-6
            )
        outcomes = {verdict.outcome for verdict in trial.verdicts()}
        if terms is BOTH:
            assert (GateOutcome.FAIL in outcomes) == (not gate.undecided[0])
        if GateOutcome.FAIL in outcomes or outcomes == {GateOutcome.PASS}:
            break
        assert np.isinf(gate.accept_seconds[0])
    assert outcome in outcomes
    assert np.isfinite(gate.accept_seconds[0]) == (outcome is GateOutcome.PASS)
