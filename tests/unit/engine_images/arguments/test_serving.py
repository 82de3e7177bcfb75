from __future__ import annotations

import pytest

from engine_images.arguments.serving import CudaGraphs, LoraAdapter, Speculation, serving
from engine_images.arguments.values import ArgumentValue


def test_nothing_said_is_what_vllm_does_by_itself() -> None:
    wanted = serving({})
    assert wanted.parallel.accelerators == 1
    assert (wanted.dtype, wanted.kv_cache_dtype, wanted.memory_utilization) == ("auto", "auto", 0.92)
    assert wanted.max_model_len is wanted.chunked_prefill is wanted.speculation is None


def test_parallel_sizes_multiply() -> None:
    args = {
        "tensor-parallel-size": 4,
        "pipeline-parallel-size": 2,
        "data-parallel-size": 3,
        "enable-expert-parallel": True,
    }
    parallel = serving(args).parallel
    assert (parallel.accelerators, parallel.expert) == (24, True)


def test_lengths_are_numbers_whatever_their_unit() -> None:
    wanted = serving({"max-model-len": "8K", "kv-cache-memory-bytes": "2G", "max-num-batched-tokens": 512})
    assert (wanted.max_model_len, wanted.kv_cache_bytes, wanted.max_num_batched_tokens) == (8192, 2**31, 512)
    assert serving({"max-model-len": "auto"}).max_model_len is None


def test_adapters_are_the_same_in_both_spellings() -> None:
    wanted = serving({"lora-modules": [{"name": "sql", "path": "model/sql", "base_model_name": "m"}, "law=model/law"]})
    assert wanted.lora == (
        LoraAdapter(name="sql", path="model/sql", base="m"),
        LoraAdapter(name="law", path="model/law"),
    )


def test_speculation_is_the_same_in_both_spellings() -> None:
    told = Speculation(method="eagle3", draft="model/draft", tokens=3, adaptive=False)
    config = {"method": "eagle3", "model": "model/draft", "num_speculative_tokens": 3}
    assert serving({"speculative-config": config}).speculation == told
    assert serving({"spec-method": "eagle3", "spec-model": "model/draft", "spec-tokens": 3}).speculation == told


@pytest.mark.parametrize(
    ("args", "graphs"),
    [
        ({}, CudaGraphs()),
        ({"enforce-eager": True}, CudaGraphs(full=False, piecewise=False)),
        ({"optimization-level": 0}, CudaGraphs(full=False, piecewise=False)),
        ({"optimization-level": 1}, CudaGraphs(full=False)),
        ({"compilation-config": {"cudagraph_mode": "piecewise"}}, CudaGraphs(full=False)),
        ({"compilation-config": {"cudagraph_mode": "FULL_DECODE_ONLY"}}, CudaGraphs(piecewise=False)),
        ({"compilation-config": {"cudagraph_mode": "NONE"}}, CudaGraphs(full=False, piecewise=False)),
        ({"compilation-config": {"cudagraph_capture_sizes": [4, 8]}}, CudaGraphs(sizes=(4, 8))),
        ({"cudagraph-capture-sizes": [1, 2]}, CudaGraphs(sizes=(1, 2))),
        ({"max-cudagraph-capture-size": 64}, CudaGraphs(largest=64)),
    ],
)
def test_the_graphs_that_vllm_is_told_to_capture(args: dict[str, ArgumentValue], graphs: CudaGraphs) -> None:
    assert serving(args).graphs == graphs
