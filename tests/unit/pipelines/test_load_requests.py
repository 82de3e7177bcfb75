"""What a load sends, by which shape, split over which processes; and what its records come to."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from statistics import mean

import pytest

from gates.evidence.request_record import RequestRecord
from pipelines.load import (
    DRAWN,
    LoadOrder,
    LoadShape,
    Quantiles,
    arm_load,
    arm_result,
    histogram_in,
    plain_requests,
    requests_like,
    shuffled,
)
from pipelines.spec.policy import prompts_in
from tidegate.core.errors import UsageError

METRICS = """
# HELP vllm:request_prompt_tokens Number of prefill tokens processed.
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{engine="0",le="10.0",model_name="m"} 10.0
vllm:request_prompt_tokens_bucket{engine="0",le="100.0",model_name="m"} 40.0
vllm:request_prompt_tokens_bucket{engine="0",le="+Inf",model_name="m"} 40.0
vllm:request_prompt_tokens_count{engine="0",model_name="m"} 40.0
vllm:request_prompt_tokens_sum{engine="0",model_name="m"} 1700.0
# HELP vllm:request_generation_tokens Number of generation tokens processed.
# TYPE vllm:request_generation_tokens histogram
vllm:request_generation_tokens_bucket{engine="0",le="5.0",model_name="m"} 20.0
vllm:request_generation_tokens_bucket{engine="0",le="20.0",model_name="m"} 30.0
vllm:request_generation_tokens_bucket{engine="0",le="+Inf",model_name="m"} 40.0
vllm:request_generation_tokens_count{engine="0",model_name="m"} 40.0
vllm:request_generation_tokens_sum{engine="0",model_name="m"} 400.0
"""


def order(**changes: object) -> LoadOrder:
    given = {"url": "http://e", "model": "m", "region": "r", "role": "canary", "version": "1", "seconds": 9, "seed": 4}
    return LoadOrder.model_validate({**given, **changes})


def record(started: float, duration: float, *, tokens: int = 10, ok: bool = True) -> RequestRecord:
    return RequestRecord(
        started=started,
        region="r",
        ok=ok,
        error="" if ok else "cut",
        ttft_seconds=duration / 2,
        duration_seconds=duration,
        output_tokens=tokens,
    )


def test_shapes_are_a_level_a_rise_and_a_threefold_spike() -> None:
    parts = (0.0, 0.2, 0.5, 0.8, 0.99)
    assert [LoadShape.STEADY.at(part) for part in parts] == [1.0] * 5
    assert [LoadShape.RAMP.at(part) for part in parts] == [0.1, 0.2, 0.5, 0.8, 0.99]
    assert [LoadShape.SPIKE.at(part) for part in parts] == [1.0, 1.0, 3.0, 1.0, 1.0]
    assert (LoadShape.STEADY.peak, LoadShape.RAMP.peak, LoadShape.SPIKE.peak) == (1.0, 1.0, 3.0)


def test_processes_share_an_order_and_send_other_requests_each() -> None:
    parts = [order(concurrency=7).part(index, 3) for index in range(3)]
    assert [part.concurrency for part in parts if part] == [3, 2, 2]
    assert len({part.seed for part in parts if part}) == 3
    assert [part.rate for index in range(4) if (part := order(rate=2.0).part(index, 4))] == [0.5] * 4
    assert order(concurrency=1).part(1, 2) is None


def test_an_order_is_of_one_kind() -> None:
    with pytest.raises(ValueError, match="exactly one of concurrency, rate"):
        order(concurrency=1, rate=1.0)
    with pytest.raises(ValueError, match="exactly one of concurrency, rate"):
        order()


def test_a_histogram_of_an_engine_gives_prompts_and_answers_their_lengths() -> None:
    requests = requests_like(["one two three", "four five"], METRICS, seed=1)
    assert len(requests) == DRAWN
    words = [len(request.prompt.split()) for request in requests]
    # A quarter has up to 10 tokens, the rest up to 100: 42.5 tokens in the mean, 1.3 of which are a word.
    assert mean(words) == pytest.approx(42.5 / 1.3, rel=0.1)
    assert max(words) <= 77
    lengths = [request.max_tokens for request in requests]
    # What exceeds the last edge counts as in the last bucket.
    assert sum(length <= 5 for length in lengths) / DRAWN == pytest.approx(0.5, abs=0.06)
    assert max(lengths) <= 20
    assert requests == requests_like(["one two three", "four five"], METRICS, seed=1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no requests in vllm:request_prompt_tokens"),
        ("no metrics at all {", "not metrics as an engine tells them"),
    ],
)
def test_a_file_without_lengths_is_refused_with_what_to_do(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        histogram_in(text, "vllm:request_prompt_tokens")
    assert caught.value.hint is not None and "/metrics" in caught.value.hint


def test_the_same_seed_sends_the_same_and_everything_comes_once_a_round() -> None:
    requests = plain_requests(["a", "b", "c", "d"], 8)
    first, again = (list(islice(shuffled(requests, 7), 8)) for _ in range(2))
    assert first == again
    assert {request.prompt for request in first[:4]} == {"a", "b", "c", "d"}
    assert list(islice(shuffled(requests, 8), 8)) != first


def test_a_block_counts_what_was_answered_in_full_from_first_to_last() -> None:
    found = arm_load([record(100, 2), record(101, 4), record(101, 1, ok=False)], engines=2, engine_hour=3.6)
    assert found is not None
    assert (found.requests, found.failed, found.output_tokens, found.seconds) == (3, 1, 20, 5.0)
    assert found.tokens_per_second == 2.0
    assert found.cost == pytest.approx(2 * 3.6 * 5 / 3600)
    assert arm_load([], engines=1, engine_hour=None) is None


def test_figures_are_of_all_blocks() -> None:
    records = [record(100, each / 100) for each in range(1, 101)] + [record(100, 1, ok=False)]
    load = arm_load(records, engines=1, engine_hour=3600.0)
    assert load is not None
    found = arm_result("7", [load], records)
    assert (found.requests, found.failed, found.errors) == (101, 1, {"cut": 1})
    assert found.e2e_seconds == Quantiles(p50=0.5, p95=0.95, p99=0.99)
    assert found.itl_seconds == Quantiles()
    assert found.tokens_per_second == 1000
    assert found.tokens_per_cost == pytest.approx(1.0 * 1000 / 1.0)


def test_prompts_are_lines_and_keep_what_only_looks_like_the_end_of_one(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes("one\u2028prompt\r\n\ntwo\n".encode())
    assert prompts_in(path) == ("one\u2028prompt", "two")
