"""No evidence is no pass, whatever shape its absence has: the most generous margins, the least sample, any noise."""

from __future__ import annotations

from typing import Any

import pytest
from alike import long
from fakes.metrics.samples import Serving, mirrored, traffic
from hypothesis import given
from hypothesis import strategies as st

from gates.analyses.agreement import AgreementGate
from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.analyses.ratio import RatioGate
from gates.evidence.batch import ArmName, Batch, Buckets, PairedAnswer, PairedReply, PodEvidence, PodTrials
from gates.model import GateOutcome, Verdict
from gates.sequential_test import AnalysisPlan, SequentialTest

GENEROUS = AnalysisPlan(
    latency=LatencyGate(max_increase=9.0, min_requests=1),
    errors=ErrorsGate(max_increase=0.9, min_requests=1),
    agreement=AgreementGate(min_similarity=0.0, min_coverage=0.0, min_pairs=1),
    judge=ScoresGate(max_drop=0.9, min_pairs=1),
    sources={"judge": ("users", "probe"), "latency": ("users", "probe"), "errors": ("users", "probe")},
    accept=0.5,
)
SAMPLES = st.lists(st.floats(0, 100), max_size=30).map(tuple)
BUCKETS = st.lists(st.integers(0, 1000), min_size=4, max_size=4).map(
    lambda counts: Buckets(edges=(0.1, 0.2, 0.5), counts=tuple(counts))
)
SCORES = st.lists(st.floats(0, 1), max_size=10).map(tuple)


@st.composite
def pods(draw: st.DrawFn, arm: ArmName) -> PodEvidence:
    times, requests = draw(st.one_of(SAMPLES, BUCKETS)), draw(st.integers(0, 1000))
    errors = draw(st.integers(0, requests))
    return PodEvidence(arm=arm, requests=requests, errors=errors, ttft=times, scores=draw(SCORES))


REPLIES = st.builds(
    PairedReply, ttft=st.none() | st.floats(0.01, 10), score=st.none() | st.floats(0, 1), output_tokens=st.just(9)
)


@st.composite
def one_armed(draw: st.DrawFn, arm: ArmName, time: float) -> tuple[Batch, Batch]:
    """Of users and of the probe; the other arm is absent, or idle."""
    idle = draw(st.sampled_from([(), (PodEvidence(arm=ArmName.CANARY if arm is ArmName.STABLE else ArmName.STABLE),)]))
    replies = draw(st.lists(REPLIES, max_size=20))
    pairs = tuple(PairedAnswer(**{str(arm): reply}) for reply in replies)
    both_lost = (PairedAnswer(),) * draw(st.integers(0, 10))
    users = Batch(time=time, arms=(draw(pods(arm)), *idle))
    return users, Batch(time=time, source="probe", pairs=pairs + both_lost)


def verdicts(terms: AnalysisPlan, batches: list[Batch]) -> list[Verdict]:
    """Those after every batch, before the deadline and after it."""
    trial, found = SequentialTest(terms), []
    for batch in batches:
        trial.take(batch)
        found += [*trial.verdicts(), *trial.verdicts(deadline_passed=True)]
    return found


def assert_none_passes(found: list[Verdict]) -> None:
    assert [verdict.reason for verdict in found if verdict.outcome is GateOutcome.PASS] == []


@pytest.mark.parametrize("arm", [ArmName.CANARY, long(ArmName.STABLE)])
@given(data=st.data())
def test_one_arm_alone_never_passes(arm: ArmName, data: st.DataObject) -> None:
    batches = [each for time in range(4) for each in data.draw(one_armed(arm, time))]
    assert_none_passes(verdicts(GENEROUS, batches))


@pytest.mark.long
@given(data=st.data())
def test_first_one_arm_and_then_the_other_never_passes(data: st.DataObject) -> None:
    """Both arms were seen, but never side by side."""
    first = [data.draw(one_armed(ArmName.STABLE, time))[0] for time in range(3)]
    then = [data.draw(one_armed(ArmName.CANARY, 3 + time))[0] for time in range(3)]
    found = verdicts(GENEROUS.model_copy(update={"sources": {}, "agreement": None, "judge": None}), first + then)
    assert_none_passes(found)


@pytest.mark.parametrize("arm", list(ArmName))
def test_thousands_of_requests_of_one_arm_never_pass(arm: ArmName) -> None:
    busy, nobody = Serving(200, scored=0.1), Serving(0)
    arms = (busy, nobody) if arm is ArmName.CANARY else (nobody, busy)
    found = verdicts(GENEROUS.model_copy(update={"sources": {"judge": ("users",)}}), list(traffic(*arms, looks=20)))
    assert_none_passes(found)
    assert {verdict.outcome for verdict in found} == {GateOutcome.RUNNING, GateOutcome.INCONCLUSIVE}


def test_requests_without_times_pass_no_latency_gate_and_times_without_requests_no_errors_gate() -> None:
    both = Serving(100)
    untimed, uncounted = [], []
    for batch in traffic(both, both, looks=20):
        untimed.append(Batch(time=batch.time, arms=[pod.model_copy(update={"ttft": ()}) for pod in batch.arms]))
        nothing = {"requests": 0, "errors": 0, "refused": 0}
        uncounted.append(Batch(time=batch.time, arms=[pod.model_copy(update=nothing) for pod in batch.arms]))
    for batches, passing in ((untimed, {"errors"}), (uncounted, {"latency"})):
        found = verdicts(GENEROUS.model_copy(update={"sources": {}}), batches)
        assert {verdict.gate for verdict in found if verdict.outcome is GateOutcome.PASS} == passing


NOTHING = PairedReply(ttft=0.1, score=0, output_tokens=24, finish_reason="length", refusal=False)
TRIALS = 'rated_total{version="{{.version}}"}'
PODS = {arm: PodTrials(arm=arm, trials=100, events=97) for arm in ArmName}


@pytest.mark.parametrize(
    ("gates", "batch", "told"),
    [
        ({"agreement": AgreementGate()}, {"pairs": (PairedAnswer(stable=NOTHING, canary=NOTHING),) * 50}, "max_tokens"),
        ({"judge": ScoresGate()}, {"pairs": (PairedAnswer(stable=NOTHING, canary=NOTHING),) * 50}, "max_tokens"),
        (
            {"ratio": RatioGate(trials=TRIALS, events=TRIALS, max_increase=0.05)},
            {"ratios": {"ratio": (*PODS.values(),)}},
            "no room for a canary that is worse",
        ),
    ],
    ids=["two empty answers", "two scores of 0", "nearly all bad in both arms"],
)
def test_no_worse_than_an_arm_that_shows_nothing_is_no_pass(gates: Any, batch: Any, told: str) -> None:
    terms = AnalysisPlan(settings=gates, sources=dict.fromkeys(gates, ("probe",)))
    trial = SequentialTest(terms)
    for time in range(40):
        trial.take(Batch(time=time, source="probe", **batch))
    (verdict,) = trial.verdicts(deadline_passed=True)
    assert verdict.outcome is GateOutcome.INCONCLUSIVE and told in verdict.reason


def test_a_gate_that_two_sources_answer_waits_for_both() -> None:
    terms = AnalysisPlan(latency=LatencyGate(), sources={"latency": ("users", "probe")})
    assert_none_passes(verdicts(terms, list(mirrored(40))))
    both = [*traffic(Serving(100), Serving(1000), looks=40), *mirrored(40)]
    assert verdicts(terms, both)[-1].outcome is GateOutcome.PASS


def test_no_batch_at_all_is_not_even_an_outcome() -> None:
    trial = SequentialTest(GENEROUS)
    assert {verdict.outcome for verdict in trial.verdicts()} == {GateOutcome.RUNNING}
    assert {verdict.outcome for verdict in trial.verdicts(deadline_passed=True)} == {GateOutcome.INCONCLUSIVE}
    assert SequentialTest(AnalysisPlan()).verdicts(deadline_passed=True) == ()
