from __future__ import annotations

from engine_images.arguments.serving import serving


def test_nothing_said_is_what_vllm_does_by_itself() -> None:
    wanted = serving({})
    assert wanted.accelerators == 1
    assert (wanted.dtype, wanted.kv_cache_dtype, wanted.memory_utilization) == ("auto", "auto", 0.92)
    assert wanted.max_model_len is wanted.draft is None


def test_parallel_sizes_multiply() -> None:
    args = {"tensor-parallel-size": 4, "pipeline-parallel-size": 2, "data-parallel-size": 3}
    assert serving(args).accelerators == 24


def test_lengths_are_numbers_whatever_their_unit() -> None:
    wanted = serving({"max-model-len": "8K", "kv-cache-memory-bytes": "2G", "max-num-batched-tokens": 512})
    assert (wanted.max_model_len, wanted.kv_cache_bytes, wanted.max_num_batched_tokens) == (8192, 2**31, 512)
    assert serving({"max-model-len": "auto"}).max_model_len is None


def test_adapters_and_drafts_are_the_same_in_both_spellings() -> None:
    wanted = serving({"lora-modules": [{"name": "sql", "path": "model/sql", "base_model_name": "m"}, "law=model/law"]})
    assert wanted.lora == (("sql", "model/sql"), ("law", "model/law"))
    for args in (
        {"speculative-config": {"method": "eagle3", "model": "model/draft"}},
        {"spec-method": "eagle3", "spec-model": "model/draft"},
    ):
        assert serving(args).draft == "model/draft"
    assert serving({"speculative-config": {"method": "ngram", "num_speculative_tokens": 3}}).draft is None
