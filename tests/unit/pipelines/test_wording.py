"""Numbers and endings in words."""

from __future__ import annotations

import pytest
from fakes.delivery.records import Delivery

from gates.model import GateOutcome, Verdict
from pipelines.events.state import GateState, TimedVerdict
from pipelines.views.wording import comparisons, key_numbers, label, number, others, stopwatch
from tidegate.core.units import duration


def gate(name: str, **numbers: float) -> GateState:
    verdict = Verdict(gate=name, outcome=GateOutcome.FAIL, reason="because", numbers=numbers)
    return GateState(name=name, step="shadow@a", history=(TimedVerdict(at=Delivery().now, verdict=verdict),))


def test_a_duration_is_as_precise_as_it_is_long() -> None:
    told = [duration(seconds) for seconds in (0.0853, 1.254, 9.97, 59.7, 200, 7500)]
    assert told == ["85 ms", "1.25 s", "10 s", "1 min 00 s", "3 min 20 s", "2 h 05 min"]


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "0:07"), (187, "3:07"), (3765, "1:02:45")])
def test_a_stopwatch_keeps_its_width(seconds: float, text: str) -> None:
    assert stopwatch(seconds) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ttft_p95_canary_seconds", 0.101, "101 ms"),
        ("errors_increase_share", 0.005, "0.50%"),
        ("median_length_ratio", 1.0, "100%"),
        ("cache_bytes", 3 * 2**20, "3 MiB"),
        ("prompts", 24.0, "24"),
        ("canary_mean_score", 0.2134, "0.213"),
        ("evidence_fine", 4_512_345.6, "4,512,346"),
        ("requests", 1500.0, "1,500"),
        ("mirror_percent", 50, "50%"),
    ],
)
def test_a_number_takes_its_unit_from_its_name(name: str, value: float, text: str) -> None:
    assert number(name, value) == text


def test_a_label_has_no_unit_and_acronyms_in_capitals() -> None:
    assert label("ttft_p95_increase_ratio") == "TTFT p95 increase"
    assert label("rate") == "rate"


def test_numbers_of_both_arms_are_one_comparison() -> None:
    numbers = {"ttft_p95_canary_seconds": 0.262, "ttft_p95_stable_seconds": 0.098, "p_value": 0.004}
    assert [str(pair) for pair in comparisons(numbers)] == ["TTFT p95 262 ms against 98 ms"]
    assert others(numbers) == [("p value", "0.004")]


def test_a_canary_without_its_stable_compares_nothing() -> None:
    assert comparisons({"canary_requests": 12.0}) == []
    assert others({"canary_requests": 12.0}) == [("canary requests", "12")]


def test_sample_sizes_are_not_what_a_verdict_rests_on() -> None:
    numbers = {"canary_requests": 50.0, "stable_requests": 150.0, "canary_failed_requests": 3.0}
    assert key_numbers(gate("errors", **numbers, stable_failed_requests=0.0)) == "failed requests 3 against 0"
    assert key_numbers(gate("errors", canary_requests=50.0, stable_requests=150.0)) == ""


def test_what_differs_is_told_before_what_is_equal() -> None:
    numbers = {"canary_failed_requests": 0.0, "stable_failed_requests": 0.0}
    refused = {"canary_refused_requests": 9.0, "stable_refused_requests": 0.0}
    assert key_numbers(gate("errors", **numbers, **refused)) == "refused requests 9 against 0"
