"""One streamed answer, line by line."""

from __future__ import annotations

import json
import math

import pytest

from pipelines.adapters.load.stream import StreamMeter, token_entropy


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


def test_entropy_is_exact_when_all_tokens_are_told_and_a_lower_bound_otherwise() -> None:
    even = [math.log(0.25)] * 4
    assert token_entropy(even) == pytest.approx(math.log(4))
    assert token_entropy([0.0]) == 0
    told = token_entropy(even[:2])
    assert told is not None
    assert told == pytest.approx(1.5 * math.log(2))
    assert told < math.log(4)


@pytest.mark.parametrize("logprobs", [[], [math.nan], [0.5, -1.0]])
def test_what_are_no_log_probabilities_has_no_entropy(logprobs: list[float]) -> None:
    assert token_entropy(logprobs) is None


def event(text: str, *likely: float) -> bytes:
    choice: dict[str, object] = {"delta": {"content": text}, "finish_reason": None}
    if likely:
        choice["logprobs"] = {"content": [{"top_logprobs": [{"logprob": value} for value in likely]}]}
    return b"data: " + json.dumps({"choices": [choice]}).encode()


def test_a_stream_keeps_the_opening_of_its_answer_and_the_mean_entropy_of_its_tokens() -> None:
    meter = StreamMeter()
    for line in (event("Yes", 0.0), event(" and no", math.log(0.5), math.log(0.5)), event("!" * 500)):
        meter.feed(line, 0.1)
    meter.feed(b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}', 0.2)
    assert meter.opening.startswith("Yes and no!!")
    assert len(meter.opening) < 300
    assert meter.entropy == pytest.approx(math.log(2) / 2)
    assert meter.prompt_tokens == 9


def test_a_stream_without_log_probabilities_has_no_entropy() -> None:
    meter = StreamMeter()
    meter.feed(event("Yes"), 0.1)
    assert (meter.entropy, meter.prompt_tokens) == (None, None)
