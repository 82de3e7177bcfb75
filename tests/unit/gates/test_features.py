"""What is remembered of a request and its answer so that drift can be seen: numbers and names, no words."""

from __future__ import annotations

import math

from gates.analyses.drift_reference import Feature, features_of_record
from gates.evidence.request_record import RequestRecord


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
