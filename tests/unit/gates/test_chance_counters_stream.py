from __future__ import annotations

import pytest
from scipy import stats

from gates.chance import majority, mean_above, more_above, more_failures
from gates.counters import gained
from gates.stream import StreamMeter


def test_the_precedence_test_is_fair_under_equal_arms() -> None:
    # Of two samples of one distribution the chance that the only canary value is the largest of 40 is 1 in 40.
    assert more_above(1, 1, reference_rank=39, reference_total=39) == pytest.approx(1 / 40)
    assert more_above(0, 40, reference_rank=38, reference_total=40) == pytest.approx(1)


def test_more_failures_asks_both_tests() -> None:
    fisher = stats.fisher_exact([[3, 37], [0, 40]], alternative="greater").pvalue
    tested = more_failures(3, 40, reference_failed=0, reference_total=40, margin=0.005)
    assert tested == pytest.approx(fisher)


def test_small_samples_prove_nothing() -> None:
    assert mean_above([1.0], 0) == 1
    assert mean_above([0.5, 0.5], 0.1) == 0
    assert mean_above([0.1, 0.1], 0.1) == 1
    assert majority(10, 10) == pytest.approx(2**-10)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([(5, 10), (15, 12), (25, 15)], 5),
        ([(15, 3), (25, 7)], 7),
        ([(5, 10), (15, 12), (25, 4)], 6),
        ([(5, 10)], 0),
        ([], 0),
    ],
    ids=["running", "began in the window", "restarted", "silent", "unknown"],
)
def test_a_counter_gains_what_was_counted_after_the_start(samples: list[tuple[float, float]], expected: float) -> None:
    assert gained(samples, since=10) == expected


def chunk(text: str, finish: str = "null") -> bytes:
    return b'data: {"choices": [{"delta": {"content": "%s"}, "finish_reason": %s}]}' % (text.encode(), finish.encode())


def test_a_stream_is_measured_from_its_first_text() -> None:
    meter = StreamMeter()
    lines = [(chunk(""), 0.1), (chunk("a"), 0.2), (b"", 0.2), (b": ping", 0.25), (chunk("b"), 0.4)]
    for line, at in [*lines, (chunk("", '"stop"'), 0.5), (b"data: [DONE]", 0.5)]:
        meter.feed(line, at)
    assert (meter.first_token, meter.output_tokens, meter.finish_reason) == (0.2, 2, "stop")
    assert meter.itl_mean == pytest.approx(0.2)
    assert meter.done and not meter.broken


def test_an_error_within_a_stream_breaks_it() -> None:
    for line in (b'data: {"error": {"message": "no"}}', b"data: {"):
        meter = StreamMeter()
        meter.feed(line, 0.1)
        assert meter.broken and meter.itl_mean is None


def test_an_empty_answer_has_a_first_token_time_and_the_servers_count_wins() -> None:
    meter = StreamMeter()
    meter.feed(chunk("", '"stop"'), 0.3)
    meter.feed(b'data: {"choices": [], "usage": {"completion_tokens": 1}}', 0.3)
    assert (meter.first_token, meter.output_tokens) == (0.3, 1)
