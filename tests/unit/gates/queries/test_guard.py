"""A guard watches one number: it fails after its patience, passes after the same of quiet, and never on nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fakes.metrics.asked import plan_of, refusal_of

from gates.evidence.batch import Batch
from gates.model import GateOutcome, Verdict
from gates.planning.forecast import forecasts
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.traffic import Exposure

GUARD: dict[str, Any] = {"kind": "query", "query": "db_error_share", "max": 0.01, "broken_for": "30s", "held_for": "1m"}


def asked(**settings: object) -> AnalysisPlan:
    return plan_of({"database": {**GUARD, **settings}})


def after(values: Sequence[float | None], *, restart_at: int = 0, over: bool = False, **settings: object) -> Verdict:
    """The verdict after looks of ten seconds each."""
    test = SequentialTest(asked(**settings))
    for look, value in enumerate(values, start=1):
        told: dict[str, Any] = (
            {"missing": {"database": "no series"}} if value is None else {"measured": {"database": value}}
        )
        test.take(Batch(time=10.0 * look, source="proxy", **told))
        if look == restart_at:
            test.restart()
    (verdict,) = test.verdicts(deadline_passed=over)
    assert verdict.gate == "database"
    return verdict


FINE, BAD = 0.001, 0.2
PASS, RUNNING, FAIL, OPEN = GateOutcome.PASS, GateOutcome.RUNNING, GateOutcome.FAIL, GateOutcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("values", "outcome", "reason"),
    [
        ([], RUNNING, "no number: nothing was asked yet"),
        ([FINE] * 7, PASS, "the query gives 0.001, which may be at most 0.01: within at every look for 1m"),
        ([FINE] * 6, RUNNING, "within at every look for 50s, 1m are asked for"),
        ([FINE] * 6 + [BAD] + [FINE] * 6, RUNNING, "within at every look for 50s"),
        ([BAD] * 3, RUNNING, "out of bounds for 20s, 30s fail"),
        ([BAD] * 4, FAIL, "the query gives 0.2, which may be at most 0.01: out of bounds for 30s"),
        ([BAD] * 4 + [FINE] * 9, FAIL, "out of bounds for 30s"),
        ([BAD] * 3 + [FINE] + [BAD] * 3, RUNNING, "out of bounds for 20s"),
        ([BAD, BAD, None, BAD, BAD], RUNNING, "out of bounds for 10s"),
        ([FINE] * 6 + [None], RUNNING, "no number: no series"),
        ([FINE] * 9 + [None] + [FINE], RUNNING, "within at every look for 0s"),
        ([None] * 30, RUNNING, "no number: no series"),
    ],
)
def test_it_has_patience_and_passes_on_no_gap(values: list[float | None], outcome: GateOutcome, reason: str) -> None:
    verdict = after(values)
    assert verdict.outcome is outcome and reason in verdict.reason


def test_when_the_time_is_over_what_was_not_shown_is_inconclusive() -> None:
    assert after([None] * 30, over=True).outcome is OPEN
    assert after([FINE] * 3, over=True).outcome is OPEN
    assert after([FINE] * 9, over=True).outcome is PASS


def test_a_change_of_weight_is_to_be_held_again_and_no_way_out() -> None:
    assert after([FINE] * 9, restart_at=9).outcome is RUNNING
    assert after([FINE] * 9, restart_at=2).outcome is PASS
    assert after([BAD] * 4, restart_at=2).outcome is FAIL


def test_without_patience_one_look_still_decides_nothing() -> None:
    assert after([BAD], broken_for="0s").outcome is RUNNING
    assert after([BAD] * 2, broken_for="0s").outcome is FAIL


def test_a_lower_bound_is_one_too() -> None:
    low = after([3.0] * 4, min=5, max=None)
    assert low.outcome is FAIL and "which may be at least 5: out of bounds" in low.reason
    assert low.numbers["min"] == 5 and low.numbers["broken_seconds"] == 30


def test_a_guard_spends_nothing_of_the_budget_that_tests_share() -> None:
    plan = plan_of({"latency": {}, "errors": {}, "database": GUARD})
    assert plan.gates == ("latency", "errors", "database")
    assert plan.conditions.rollback == pytest.approx(0.01 / 2)
    assert sum(standing.asked.weight for standing in SequentialTest(plan)._standings) == pytest.approx(1)


def test_a_plan_says_its_patience_whatever_the_traffic() -> None:
    (told,) = forecasts(asked(), Exposure(within_seconds=300))
    assert (told.unit, told.canary_requests_to_pass, told.seconds_to_pass) == ("looks", 7, 70)
    assert (told.canary_requests_to_fail, told.reachable) == (None, True)
    (late,) = forecasts(asked(), Exposure(within_seconds=60))
    assert not late.reachable


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"max": None}, "found nothing; expected a bound: max, min, or both"),
        ({"min": 2}, "found 2; expected at most max, 0.01"),
        ({"query": "up{a='{{.arm}}'}"}, "only these open places: window, region, role, version; not arm"),
        ({"query": None}, "found nothing; expected PromQL of one number"),
    ],
)
def test_a_guard_without_a_bound_or_a_query_is_refused(changed: dict[str, Any], problem: str) -> None:
    assert problem in refusal_of({**GUARD, **changed})
