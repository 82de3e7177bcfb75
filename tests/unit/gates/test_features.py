"""What is remembered of a request and its answer so that drift can be seen: numbers and names, no words."""

from __future__ import annotations

import json
import math

import pytest

from gates.analyses.drift.reference import features_of_record
from gates.analyses.drift.spec import Feature
from gates.load import RequestRecord, StreamMeter, token_entropy


def a_record(**changes: object) -> RequestRecord:
    known: dict[str, object] = {
        "started": 0.0, "region": "eu-west-1", "role": "canary", "version": "2", "status": 200, "ok": True,
        "duration_seconds": 1.0, "output_tokens": 21, "finish_reason": "stop", "refusal": False, "entropy": 0.7,
        "prompt_characters": 40, "prompt_language": "de", "prompt_topic": 3,
    }  # fmt: skip
    return RequestRecord.model_validate(known | changes)


def test_a_record_has_features_of_its_prompt_and_of_its_answer() -> None:
    assert features_of_record(a_record()) == {
        Feature.PROMPT_LENGTH: 40, Feature.LANGUAGE: "de", Feature.TOPIC: "3",
        Feature.LENGTH: 21, Feature.FINISH_REASON: "stop", Feature.REFUSAL: "false", Feature.ENTROPY: 0.7,
    }  # fmt: skip


def test_an_answer_that_did_not_end_well_has_no_features_but_its_prompt_has() -> None:
    assert set(features_of_record(a_record(ok=False, error="cut"))) == {
        Feature.PROMPT_LENGTH, Feature.LANGUAGE, Feature.TOPIC,
    }  # fmt: skip


def test_a_line_written_before_features_were_known_still_reads_and_knows_none_of_them() -> None:
    old = '{"started": 1, "region": "eu", "ok": true, "duration_seconds": 1, "output_tokens": 2, "finish_reason": "no"}'
    assert features_of_record(RequestRecord.model_validate_json(old)) == {
        Feature.LENGTH: 2, Feature.FINISH_REASON: "no",
    }  # fmt: skip


def test_what_is_no_number_is_not_known() -> None:
    assert Feature.ENTROPY not in features_of_record(a_record(entropy=math.nan))
    assert Feature.ENTROPY not in features_of_record(a_record(entropy=math.inf))


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
