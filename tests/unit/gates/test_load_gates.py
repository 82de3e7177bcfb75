"""Gates on blocks of load: what they pass, what they stop, how often they are wrong, and what they need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.evidence.batch import ArmLoad, Batch, LoadBlock
from gates.model import GateOutcome, Verdict
from gates.planning.forecast import forecasts
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.traffic import Exposure

BLOCK_SECONDS = 42.0
SPREAD = 0.05


def a_block(
    canary: float, *, stable: float = 1000.0, price: float | None = None, canary_price: float | None = None
) -> LoadBlock:
    """Tokens a second on either arm."""

    def arm(speed: float, price: float | None) -> ArmLoad:
        return ArmLoad(requests=10, output_tokens=round(speed * 20), seconds=20, engine_hour=price)

    return LoadBlock(stable=arm(stable, price), canary=arm(canary, canary_price or price))


def blocks(
    factor: float, *, seed: int, spread: float = SPREAD, most: int = 120, price: float | None = None
) -> list[LoadBlock]:
    ratios = factor * np.exp(np.random.default_rng(seed).normal(0, spread, most))
    return [a_block(1000 * float(ratio), price=price) for ratio in ratios]


def judged(found: list[LoadBlock], *, rollback: float = 0.003, **gates: Any) -> tuple[int, Verdict]:
    """After how many blocks the first gate decided, and what it said."""
    test = SequentialTest(AnalysisPlan.model_validate({**(gates or {"throughput": {}}), "rollback": rollback}))
    for number, block in enumerate(found, start=1):
        test.take(Batch(time=number * BLOCK_SECONDS, source="load", blocks=(block,)))
        (verdict,) = test.verdicts()
        if verdict.outcome in (GateOutcome.PASS, GateOutcome.FAIL):
            return number, verdict
    (verdict,) = test.verdicts(deadline_passed=True)
    return len(found), verdict


def test_a_version_as_fast_passes_within_a_few_blocks() -> None:
    numbers = [judged(blocks(1.0, seed=seed)) for seed in range(20)]
    assert {verdict.outcome for _, verdict in numbers} == {GateOutcome.PASS}
    assert float(np.median([number for number, _ in numbers])) <= 10


def test_half_the_throughput_is_stopped_and_told_in_tokens() -> None:
    number, verdict = judged(blocks(0.5, seed=1))
    assert (verdict.outcome, number <= 12) == (GateOutcome.FAIL, True)
    assert verdict.reason.startswith("canary serves 50")
    assert "tokens/s an engine against 1,000 on stable" in verdict.reason
    assert "that it serves fewer than tolerated, after" in verdict.reason
    assert verdict.numbers["stable_tokens_per_second"] == pytest.approx(1000)


def test_a_forecast_is_what_happens() -> None:
    plan = AnalysisPlan.model_validate({"throughput": {}, "rollback": 0.003})
    (told,) = forecasts(plan, Exposure(block_seconds=BLOCK_SECONDS, within_seconds=3600))
    assert told.unit == "blocks" and told.reachable
    passes = float(np.median([judged(blocks(1.0, seed=seed))[0] for seed in range(30)]))
    fails = float(np.median([judged(blocks(0.9, seed=seed))[0] for seed in range(30)]))
    assert told.canary_requests_to_pass == pytest.approx(passes, abs=2)
    assert told.canary_requests_to_fail == pytest.approx(fails, rel=0.25)
    assert told.seconds_to_pass == told.canary_requests_to_pass * BLOCK_SECONDS


def test_a_stage_that_is_too_short_is_told_what_would_do() -> None:
    plan = AnalysisPlan.model_validate({"throughput": {}})
    short = Exposure(block_seconds=BLOCK_SECONDS, within_seconds=100)
    (told,) = forecasts(plan, short)
    assert not told.reachable
    assert set(told.proposals) == {"within"}


def test_a_block_in_which_stable_served_nothing_is_no_evidence() -> None:
    number, verdict = judged([a_block(1000.0, stable=0.0)] * 40)
    assert (number, verdict.outcome) == (40, GateOutcome.INCONCLUSIVE)
    assert verdict.reason == "no block of load in which stable served anything"


def test_cost_needs_a_price_and_knows_that_arms_may_have_another() -> None:
    _, verdict = judged(blocks(1.0, seed=0, most=10), cost={})
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert verdict.reason == "no block of load with a price in which stable served anything"
    _, verdict = judged(blocks(1.0, seed=0, price=3.6), cost={})
    assert verdict.outcome is GateOutcome.PASS
    # As fast on twice the hardware: twice the price of a token.
    _, verdict = judged([a_block(1000.0, price=3.6, canary_price=7.2)] * 40, cost={})
    assert verdict.outcome is GateOutcome.FAIL
    assert "a million tokens cost 2 on the canary against 1 on stable (+100.0%, allowed +10%)" in verdict.reason
