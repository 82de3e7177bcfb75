"""The one rule of every gate: a point estimate lets pass, only proof fails, time makes nothing better."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fakes.evidence import FakeEvidence

from gates.chance import ALPHA
from gates.decide import Finding, decide, too_few, undecided
from gates.distribution import Distribution, Latencies
from gates.evaluate import judge, measure
from gates.model import AnswerScores, ArmKey, Counts, Outcome, Pairs, RequestCounts, Scores, Verdict, worst
from gates.records import RequestRecord
from gates.spec import AgreementGate, ErrorsGate, LatencyGate, QualityGate
from gates.traffic import LoadTotals, totals

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STABLE = ArmKey(region="eu-west-1", role="stable", version="1")
CANARY = ArmKey(region="eu-west-1", role="canary", version="2")


def a_finding(*, beyond: bool, p_value: float) -> Finding:
    return Finding(sentence="so slow", numbers={"seconds": 1.0}, beyond_margin=beyond, p_value=p_value)


@pytest.mark.parametrize(
    ("beyond", "p_value", "over", "outcome"),
    [
        (False, 0.0, False, Outcome.PASS),
        (False, 0.9, True, Outcome.PASS),
        (True, ALPHA / 2, False, Outcome.FAIL),
        (True, ALPHA / 2, True, Outcome.FAIL),
        (True, ALPHA, False, Outcome.RUNNING),
        (True, ALPHA, True, Outcome.INCONCLUSIVE),
        (True, 0.9, True, Outcome.INCONCLUSIVE),
    ],
)
def test_margin_chance_and_time_make_the_outcome(beyond: bool, p_value: float, over: bool, outcome: Outcome) -> None:
    assert decide("latency", a_finding(beyond=beyond, p_value=p_value), deadline_passed=over).outcome is outcome


def test_what_may_be_chance_says_how_likely() -> None:
    verdict = decide("latency", a_finding(beyond=True, p_value=0.0432), deadline_passed=False)
    assert verdict.reason == "so slow, which may be chance (p = 0.043)"
    assert verdict.numbers == {"seconds": 1.0, "p_value": 0.0432}


@pytest.mark.parametrize(("over", "outcome"), [(False, Outcome.RUNNING), (True, Outcome.INCONCLUSIVE)])
def test_missing_evidence_is_never_a_pass(over: bool, outcome: Outcome) -> None:
    assert undecided("errors", "no requests", {}, deadline_passed=over).outcome is outcome


@pytest.mark.parametrize(
    ("stable", "canary", "words"),
    [
        (40, 40, None),
        (40, 39, "39 requests on the canary and 40 on stable; at least 40 each are needed"),
        (3, 50, "50 requests on the canary and 3 on stable; at least 40 each are needed"),
        (40, 0, "the canary has no requests while stable has 40; at least 40 are needed"),
        (39, 0, "0 requests on the canary and 39 on stable; at least 40 each are needed"),
    ],
)
def test_a_sample_that_is_too_small_is_told_with_both_numbers(stable: int, canary: int, words: str | None) -> None:
    assert too_few("requests", stable, canary, 40) == words


def test_outcomes_are_ordered_from_best_to_worst() -> None:
    assert sorted(Outcome) == [
        Outcome.PASS, Outcome.RUNNING, Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.FAIL,
    ]  # fmt: skip
    assert worst([Outcome.PASS, Outcome.FAIL, Outcome.ERROR]) is Outcome.FAIL


def test_no_gates_at_all_decide_nothing() -> None:
    assert worst([]) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_pass_and_fail_are_final(outcome: Outcome) -> None:
    decided = Verdict(gate="g", outcome=outcome, reason="r").decided
    assert decided is (outcome in (Outcome.PASS, Outcome.FAIL))


def test_a_gate_looks_at_its_own_kind_of_evidence() -> None:
    counts = RequestCounts(stable=Counts(total=99, failed=0), canary=Counts(total=99, failed=0))
    scores = AnswerScores(stable=Scores(by_prompt={"p": 1}), canary=Scores(by_prompt={"p": 1}))
    times = Latencies(stable=Distribution.from_samples([1.0] * 99), canary=Distribution.from_samples([1.0] * 99))
    asked = [
        judge(LatencyGate(), times, deadline_passed=False),
        judge(ErrorsGate(), counts, deadline_passed=False),
        judge(QualityGate(min_prompts=1), scores, deadline_passed=False),
        judge(AgreementGate(), Pairs(sent=0), deadline_passed=False),
    ]
    assert [(verdict.gate, verdict.outcome) for verdict in asked] == [
        ("latency", Outcome.PASS), ("errors", Outcome.PASS), ("quality", Outcome.PASS), ("agreement", Outcome.RUNNING),
    ]  # fmt: skip


def test_evidence_of_another_kind_is_a_bug() -> None:
    with pytest.raises(TypeError, match="LatencyGate does not look at Pairs"):
        judge(LatencyGate(), Pairs(sent=0), deadline_passed=False)


@pytest.mark.parametrize(("settings", "gate"), [(LatencyGate(), "latency"), (ErrorsGate(), "errors")])
def test_a_source_that_is_gone_is_an_error_of_that_gate(settings: LatencyGate | ErrorsGate, gate: str) -> None:
    source = FakeEvidence()
    source.gone = True
    window = {"since": NOON, "until": NOON + timedelta(minutes=1)}
    verdict = measure(settings, source, stable=STABLE, canary=CANARY, **window, deadline_passed=True)
    assert (verdict.gate, verdict.outcome, verdict.reason) == (gate, Outcome.ERROR, "Prometheus is not there")


@pytest.mark.parametrize("settings", [LatencyGate(), ErrorsGate()])
def test_an_arm_that_the_source_does_not_know_is_no_zero(settings: LatencyGate | ErrorsGate) -> None:
    source = FakeEvidence()
    source.serves("stable", "1", requests=100)
    window = {"since": NOON, "until": NOON + timedelta(minutes=1)}
    verdict = measure(settings, source, stable=STABLE, canary=CANARY, **window, deadline_passed=True)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason.endswith("of the canary: nothing of canary version 2 in eu-west-1")


def test_a_load_adds_up_what_became_of_every_request() -> None:
    def record(*, ok: bool, cut: bool = False) -> RequestRecord:
        return RequestRecord(started=0.0, region="eu", ok=ok, cut=cut, duration_seconds=1.0)

    records = [record(ok=True), record(ok=True), record(ok=False), record(ok=False, cut=True)]
    assert totals(records) == LoadTotals(requests=4, failed=2, cut=1)
    assert totals([]) == LoadTotals(requests=0, failed=0, cut=0)


@pytest.mark.parametrize(
    ("status", "refused"), [(0, False), (200, False), (399, False), (400, True), (499, True), (500, False)]
)
def test_a_refusal_is_an_answer_with_a_4xx(status: int, refused: bool) -> None:
    record = RequestRecord(started=10.0, region="eu", ok=False, status=status, duration_seconds=1.5)
    assert (record.refused, record.ended) == (refused, 11.5)
