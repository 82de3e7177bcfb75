from __future__ import annotations

import pytest
from pydantic import JsonValue

from engine_images.arguments.values import complaint, read_count


@pytest.mark.parametrize(
    ("written", "count"),
    [(0, 0), (8192, 8192), ("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5m", 1_500_000), ("1G", 1024**3)],
)
def test_counts_are_read_as_vllm_reads_them(written: JsonValue, count: int) -> None:
    assert read_count(written) == count


@pytest.mark.parametrize("written", [-1, True, 1.5, "1.5K", "8 k", "k", "", None, [1]])
def test_what_vllm_would_not_read_as_a_count_is_none(written: JsonValue) -> None:
    assert read_count(written) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max-model-len", "auto"),
        ("kv-cache-memory-bytes", "2G"),
        ("gpu-memory-utilization", 1),
        ("speculative-config", {"method": "ngram"}),
        ("dtype", "half"),
        ("anything-else", ["*"]),
    ],
)
def test_an_argument_takes_what_it_is_for(name: str, value: JsonValue) -> None:
    assert complaint(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max-num-seqs", True, "a whole number"),
        ("max-num-seqs", "3", "a whole number"),
        ("max-model-len", "long", "a whole number, one such as 8k (8000) or 8K (8192), or auto"),
        ("gpu-memory-utilization", "0.5", "a number"),
        ("compilation-config", '{"mode": 3}', "a mapping"),
        ("dtype", "bfloat61", "one of auto, bfloat16, float, float16, float32, half"),
        ("quantization", ["fp8"], "text"),
        ("anything-else", None, "a value, or no such line"),
    ],
)
def test_an_argument_says_what_it_would_take_instead(name: str, value: JsonValue, expected: str) -> None:
    assert complaint(name, value) == expected
