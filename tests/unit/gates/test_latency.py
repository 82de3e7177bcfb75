from __future__ import annotations

import pytest

from gates.distribution import Distribution, Latencies
from gates.latency import judge_latency
from gates.model import NoData, Outcome, Verdict
from gates.spec import LatencyGate


def spread(count: int, center: float) -> Distribution:
    """Latencies evenly within 20 % around `center` seconds."""
    return Distribution.from_samples(center * (0.8 + 0.4 * (number + 0.5) / count) for number in range(count))


def judge(
    canary: Distribution | NoData, stable: Distribution | NoData | None = None, *, deadline_passed: bool = False
) -> Verdict:
    evidence = Latencies(stable=stable or spread(210, 0.18), canary=canary)
    return judge_latency(LatencyGate(), evidence, deadline_passed=deadline_passed)


def test_a_canary_as_fast_as_stable_passes_at_the_minimum_sample() -> None:
    assert judge(spread(40, 0.18)).outcome is Outcome.PASS
    assert judge(spread(39, 0.18)).outcome is Outcome.RUNNING
    assert judge(spread(39, 0.18), deadline_passed=True).outcome is Outcome.INCONCLUSIVE


def test_a_slow_canary_fails_with_a_sentence_that_says_why() -> None:
    verdict = judge(spread(64, 0.412))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == (
        "canary TTFT p95 is 485 ms against 212 ms on stable (+129 %, allowed +20 %) after 64 and 210 requests"
    )
    assert verdict.numbers["ttft_p95_canary_seconds"] == pytest.approx(0.485, abs=0.001)
    assert verdict.numbers["p_value"] < 1e-6


def test_a_slow_canary_fails_even_against_the_smallest_stable_sample() -> None:
    assert judge(spread(40, 0.4), spread(40, 0.18)).outcome is Outcome.FAIL


def test_a_few_slow_requests_may_be_chance() -> None:
    slow = Distribution.from_samples([0.18] * 37 + [0.4] * 3)
    assert judge(slow).outcome is Outcome.RUNNING
    late = judge(slow, deadline_passed=True)
    assert late.outcome is Outcome.INCONCLUSIVE
    assert "may be chance" in late.reason


@pytest.mark.parametrize("silent", [Distribution.from_samples([]), NoData(reason="no series")])
def test_a_silent_canary_never_passes(silent: Distribution | NoData) -> None:
    assert judge(silent).outcome is Outcome.RUNNING
    assert judge(silent, deadline_passed=True).outcome is Outcome.INCONCLUSIVE


def test_a_silent_stable_arm_never_lets_the_canary_pass() -> None:
    assert judge(spread(100, 0.18), NoData(reason="no series")).outcome is Outcome.RUNNING


def test_buckets_and_samples_lead_to_the_same_verdict() -> None:
    edges = [0.1, 0.15, 0.2, 0.25, 0.5, 1.0]

    def binned(raw: Distribution) -> Distribution:
        lows = [0.0, *edges[:-1]]
        counts = [sum(low < cell.low <= high for cell in raw.cells) for low, high in zip(lows, edges, strict=True)]
        return Distribution.from_buckets(edges, counts)

    for center in (0.18, 0.412):
        raw = judge(spread(64, center))
        histogram = judge(binned(spread(64, center)), binned(spread(210, 0.18)))
        assert raw.outcome is histogram.outcome
