from __future__ import annotations

from gates.error_rate import judge_errors
from gates.model import Counts, NoData, Outcome, RequestCounts, Verdict
from gates.spec import ErrorsGate


def judge(canary: Counts | NoData, stable: Counts | NoData, *, deadline_passed: bool = False) -> Verdict:
    return judge_errors(ErrorsGate(), RequestCounts(stable=stable, canary=canary), deadline_passed=deadline_passed)


STABLE = Counts(total=400, failed=0)


def test_no_failures_at_the_minimum_sample_pass() -> None:
    assert judge(Counts(total=40, failed=0), STABLE).outcome is Outcome.PASS
    assert judge(Counts(total=39, failed=0), STABLE).outcome is Outcome.RUNNING
    assert judge(Counts(total=39, failed=0), STABLE, deadline_passed=True).outcome is Outcome.INCONCLUSIVE


def test_many_failures_fail_with_numbers() -> None:
    verdict = judge(Counts(total=50, failed=10), STABLE)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == (
        "canary failed 10 of 50 requests (20.0%) against 0 of 400 (0.0%) on stable (+20.0 pp, allowed +0.5 pp)"
    )
    assert verdict.numbers["canary_failed_requests"] == 10


def test_one_failure_may_be_chance() -> None:
    assert judge(Counts(total=40, failed=1), STABLE).outcome is Outcome.RUNNING
    assert judge(Counts(total=40, failed=1), STABLE, deadline_passed=True).outcome is Outcome.INCONCLUSIVE


def test_an_outage_of_both_arms_is_not_the_canary() -> None:
    assert judge(Counts(total=40, failed=20), Counts(total=400, failed=210)).outcome is Outcome.PASS


def test_refusals_of_the_canary_alone_fail() -> None:
    verdict = judge(Counts(total=40, failed=0, refused=40), STABLE)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason.startswith("canary refused 40 of 40")


def test_a_dead_or_silent_canary_never_passes() -> None:
    for silent in (Counts(total=0, failed=0), NoData(reason="no series")):
        assert judge(silent, STABLE).outcome is Outcome.RUNNING
        assert judge(silent, STABLE, deadline_passed=True).outcome is Outcome.INCONCLUSIVE
    assert judge(Counts(total=100, failed=0), NoData(reason="none")).outcome is Outcome.RUNNING
