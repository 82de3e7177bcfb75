"""A trial's own promises: its budget, what stays said, what starts again, and what it refuses."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from alike import crossed
from fakes.metrics.samples import Serving, mirrored, traffic
from hypothesis import given
from hypothesis import strategies as st

from gates.analyses.agreement import AgreementGate
from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import ArmName, Batch, Buckets, LatencyMetric, PairedAnswer, PairedReply, PodEvidence
from gates.model import GateOutcome
from gates.sequential_test import AnalysisPlan, SequentialTest, metric_tests
from tidegate.core.errors import UsageError

EVERYTHING = AnalysisPlan(
    latency=LatencyGate(),
    errors=ErrorsGate(),
    agreement=AgreementGate(),
    judge=ScoresGate(),
    sources=dict.fromkeys(("latency", "errors", "judge"), ("users", "probe")),
    mirrored=0.5,
)
HEALTHY, STABLE = Serving(100), Serving(900, pods=4)


def at(batch: Batch, later: float) -> Batch:
    return batch.model_copy(update={"time": batch.time + later})


@pytest.mark.parametrize(
    "terms", [EVERYTHING, AnalysisPlan(errors=ErrorsGate()), AnalysisPlan(latency=LatencyGate(), judge=ScoresGate())]
)
def test_one_budget_is_shared_out_over_all_questions(terms: AnalysisPlan) -> None:
    weights = [asked.weight for asked, _ in metric_tests(terms)]
    assert sum(weights) == pytest.approx(1) and min(weights) >= 0
    by_gate = {
        gate: sum(asked.weight for asked, _ in metric_tests(terms) if asked.gate == gate) for gate in terms.gates
    }
    assert list(by_gate.values()) == pytest.approx([1 / len(terms.gates)] * len(terms.gates))


def test_a_fail_needs_the_whole_budgets_evidence_over_all_questions() -> None:
    trial = SequentialTest(
        AnalysisPlan.model_validate(
            {**EVERYTHING.model_dump(), "agreement": None, "judge": None, "mirrored": None, "sources": {}}
        )
    )
    for batch in traffic(Serving(100, failing=0.04), STABLE, looks=60):
        trial.take(batch)
        failed = any(verdict.outcome is GateOutcome.FAIL for verdict in trial.verdicts())
        assert failed == (trial.log_worse >= math.log(100))
        if failed:
            break
    latency, errors = trial.verdicts()
    assert (latency.outcome, errors.outcome) == (GateOutcome.RUNNING, GateOutcome.FAIL)
    assert errors.numbers["evidence_worse_needed"] == pytest.approx(100 / (1 / 2 * 2 / 3))


def test_a_fail_stays_said_whatever_follows() -> None:
    trial = SequentialTest(AnalysisPlan(errors=ErrorsGate()))
    for batch in traffic(Serving(100, failing=0.2), STABLE, looks=10):
        trial.take(batch)
    (said,) = trial.verdicts()
    for batch in traffic(Serving(100, failing=0.0), Serving(900, failing=0.2), looks=50):
        trial.take(at(batch, 100))
    assert trial.verdicts() == (said,) and said.outcome is GateOutcome.FAIL
    trial.restart()
    assert trial.verdicts(deadline_passed=True) == (said,)


def test_a_pass_is_taken_back_when_what_follows_speaks_against_it() -> None:
    trial = SequentialTest(AnalysisPlan(errors=ErrorsGate(max_increase=0.02), rollback=1e-300))
    for batch in traffic(HEALTHY, STABLE, looks=10):
        trial.take(batch)
    found = [trial.verdicts()[0].outcome]
    for batch in traffic(Serving(100, failing=0.05), STABLE, looks=40):
        trial.take(at(batch, 100))
        found.append(trial.verdicts()[0].outcome)
    assert list(dict.fromkeys(found)) == [GateOutcome.PASS, GateOutcome.RUNNING, GateOutcome.FAIL]


def test_at_a_new_weight_a_pass_is_shown_again_and_the_evidence_against_stays() -> None:
    trial = SequentialTest(AnalysisPlan(latency=LatencyGate(), errors=ErrorsGate(max_increase=0.02)))
    for batch in traffic(HEALTHY, STABLE, looks=15):
        trial.take(batch)
    against = trial.log_worse
    assert {verdict.outcome for verdict in trial.verdicts()} == {GateOutcome.PASS}
    trial.restart()
    assert {verdict.outcome for verdict in trial.verdicts()} == {GateOutcome.RUNNING}
    assert trial.log_worse == against
    for batch in traffic(HEALTHY, STABLE, looks=15, seed=1):
        trial.take(at(batch, 150))
    assert {verdict.outcome for verdict in trial.verdicts()} == {GateOutcome.PASS}


@pytest.mark.parametrize("late", [0.0, -0.5, -100.0])
def test_a_late_batch_is_refused_and_nothing_is_learnt_of_it(late: float) -> None:
    trial, other = SequentialTest(EVERYTHING), SequentialTest(EVERYTHING)
    batches = list(traffic(HEALTHY, STABLE, looks=6))
    for batch in batches:
        trial.take(batch)
        other.take(batch)
    with pytest.raises(UsageError, match=r"came after one at 1060\.000 from the same source"):
        trial.take(next(traffic(Serving(500, failing=1.0), STABLE, looks=1)).model_copy(update={"time": 1060 + late}))
    assert trial.verdicts() == other.verdicts()
    for one in (trial, other):
        one.take(at(batches[0], 60))
        # Sources have clocks of their own.
        one.take(next(mirrored(1)))
    assert (trial.verdicts(), trial.log_worse) == (other.verdicts(), other.log_worse)


def test_a_source_that_nobody_asked_says_nothing() -> None:
    trial = SequentialTest(AnalysisPlan(errors=ErrorsGate(), sources={"errors": ("proxy",)}))
    for batch in traffic(Serving(100, failing=1.0), STABLE, looks=10):
        trial.take(batch)
    assert trial.verdicts()[0].reason == "no requests of the canary"


COUNTS = st.integers(0, 40) | st.integers(0, 10**7)
TIMES = st.one_of(
    st.just(()),
    st.lists(st.sampled_from([0.0, 1e-9, 0.05, 0.2, 0.21, 1.0, 599.0, 1e5]), max_size=60).map(tuple),
    st.lists(COUNTS, min_size=3, max_size=3).map(lambda counts: Buckets(edges=(0.2, 0.4), counts=tuple(counts))),
    st.lists(COUNTS, min_size=5, max_size=5).map(lambda counts: Buckets(edges=(0, 0.2, 0.4, 9), counts=tuple(counts))),
    st.lists(COUNTS, min_size=2, max_size=2).map(lambda counts: Buckets(edges=(3,), counts=tuple(counts))),
)


@st.composite
def strange_batches(draw: st.DrawFn, time: float) -> Batch:
    arms = []
    for arm, pod in draw(
        st.lists(st.tuples(st.sampled_from(list(ArmName)), st.integers(0, 3)), max_size=5, unique=True)
    ):
        requests = draw(COUNTS)
        errors = draw(st.sampled_from([0, requests // 2, requests]))
        scores = draw(st.sampled_from([(), (0.0,) * 9, (1.0,) * 9, (0.5, 1.0)]))
        arms.append(
            PodEvidence(arm=arm, pod=str(pod), requests=requests, errors=errors, ttft=draw(TIMES), scores=scores)
        )
    ttft = st.sampled_from([None, 0.0, 1e-9, 0.2, 1e6])
    reply = st.none() | st.builds(
        PairedReply, ttft=ttft, score=st.sampled_from([None, 0.0, 1.0]), refusal=st.booleans()
    )
    pairs = draw(
        st.lists(st.builds(PairedAnswer, stable=reply, canary=reply, similarity=st.sampled_from([None, 0.0, 1.0])))
    )
    source = draw(st.sampled_from(["users", "probe"]))
    return Batch(time=time, source=source, arms=tuple(arms), pairs=tuple(pairs))


@pytest.mark.parametrize(("quantile", "margin"), crossed([0.5, 0.999], [0.0, 1.0], every=2))
@given(data=st.data())
def test_no_batch_makes_a_verdict_that_is_no_number(quantile: float, margin: float, data: st.DataObject) -> None:
    terms = AnalysisPlan.model_validate(
        {
            **EVERYTHING.model_dump(),
            "latency": LatencyGate(quantile=quantile, max_increase=margin, tolerance=0.0),
            "errors": ErrorsGate(max_increase=margin),
            "judge": ScoresGate(max_drop=margin, tolerance=margin / 2),
            "mirrored": None,
        }
    )
    trial, time = SequentialTest(terms), 0.0
    for step in data.draw(st.lists(st.sampled_from([1e-3, 1.0, 3600.0]), min_size=1, max_size=4)):
        trial.take(data.draw(strange_batches(time := time + step)))
        for verdict in trial.verdicts():
            assert np.isfinite(list(verdict.numbers.values())).all(), verdict
            assert verdict.reason and "nan" not in verdict.reason and "inf" not in verdict.reason
            json.loads(verdict.model_dump_json(), parse_constant=pytest.fail)
    assert not math.isnan(trial.log_worse)


def test_histograms_that_cannot_be_compared_are_missing_evidence_with_a_reason() -> None:
    trial = SequentialTest(AnalysisPlan(latency=LatencyGate()))
    canary = PodEvidence(arm=ArmName.CANARY, ttft=Buckets(edges=(0.1, 0.2, 0.4), counts=(100, 100, 100, 0)))
    stable = PodEvidence(arm=ArmName.STABLE, ttft=Buckets(edges=(0.15, 0.3, 0.4), counts=(100, 100, 100, 0)))
    trial.take(Batch(time=1, arms=(canary, stable)))
    (verdict,) = trial.verdicts(deadline_passed=True)
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert verdict.reason == (
        "no TTFT of the canary: the histograms of both arms have fewer than two bucket edges in common"
    )


@pytest.mark.parametrize("metric", list(LatencyMetric))
def test_every_time_of_a_request_can_be_judged(metric: LatencyMetric) -> None:
    trial = SequentialTest(AnalysisPlan(latency=LatencyGate(metric=metric)))
    for batch in traffic(HEALTHY, STABLE, looks=20):
        times = [pod.model_copy(update={"ttft": (), str(metric): pod.ttft}) for pod in batch.arms]
        trial.take(batch.model_copy(update={"arms": tuple(times)}))
    assert trial.verdicts()[0].outcome is GateOutcome.PASS


def test_next_to_a_verdict_stands_what_the_gates_other_questions_know_from_the_same_source() -> None:
    trial = SequentialTest(AnalysisPlan(errors=ErrorsGate()))
    batches = [*traffic(HEALTHY, STABLE, looks=3)]
    for batch in batches:
        trial.take(batch)
    (errors,) = trial.verdicts()
    known = {**errors.auxiliary, **errors.numbers}
    pods = [pod for batch in batches for pod in batch.arms if pod.arm is ArmName.CANARY]
    assert not errors.auxiliary.keys() & errors.numbers.keys()
    assert known["canary_refused_requests"] == sum(pod.refused for pod in pods)
    assert known["canary_failed_requests"] == sum(pod.errors for pod in pods)


def test_numbers_of_two_sources_are_never_mixed() -> None:
    trial = SequentialTest(AnalysisPlan(errors=ErrorsGate(), sources={"errors": ("users", "proxy")}))
    for batch in traffic(HEALTHY, STABLE, looks=3):
        trial.take(batch)
    (errors,) = trial.verdicts()
    # The proxies said nothing, so they are furthest from an answer.
    assert {**errors.auxiliary, **errors.numbers}["canary_requests"] == 0
