"""One streamed answer, line by line."""

from __future__ import annotations

import pytest

from gates.load import StreamMeter


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
