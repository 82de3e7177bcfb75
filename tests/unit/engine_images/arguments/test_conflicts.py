"""Arguments that vLLM refuses together."""

from __future__ import annotations

import pytest

from engine_images.arguments.conflicts import argument_conflicts
from engine_images.arguments.values import Arguments

ODD: list[tuple[Arguments, str]] = [
    ({"enable-auto-tool-choice": True}, "enable-auto-tool-choice"),
    ({"enable-log-outputs": True}, "enable-log-outputs"),
    ({"lora-modules": [{"name": "a", "path": "model/a"}]}, "lora-modules"),
    ({"enable-lora": True, "lora-modules": ["a=model/a", "a=model/b"]}, "lora-modules"),
    ({"enable-lora": True, "lora-modules": [{"name": "a"}]}, "lora-modules"),
    ({"kv-cache-memory-bytes": "1G", "gpu-memory-utilization": 0.8}, "gpu-memory-utilization"),
    ({"gpu-memory-utilization": 90}, "gpu-memory-utilization"),
    ({"max-num-seqs": 512, "max-num-batched-tokens": 256}, "max-num-seqs"),
    ({"max-loras": 4, "max-cpu-loras": 2}, "max-loras"),
    ({"data-parallel-size-local": 4, "data-parallel-size": 2}, "data-parallel-size-local"),
    ({"tensor-parallel-size": 0}, "tensor-parallel-size"),
    (
        {"max-model-len": "4k", "max-num-batched-tokens": 2048, "enable-chunked-prefill": False},
        "max-num-batched-tokens",
    ),
    ({"enable-eplb": True, "enable-expert-parallel": True}, "enable-eplb"),
    ({"per-request-spec-decode-metrics": "summary"}, "per-request-spec-decode-metrics"),
    ({"spec-method": "ngram", "speculative-config": {"method": "ngram", "num_speculative_tokens": 3}}, "spec-method"),
    ({"speculative-config": {"method": "ngram"}}, "speculative-config"),
    ({"quantization": "fp8", "dtype": "float32"}, "dtype"),
    ({"spec-method": "ngram", "spec-tokens": 3, "async-scheduling": True}, "async-scheduling"),
    (
        {
            "speculative-config": {"method": "eagle", "model": "model/draft", "enable_adaptive_verification": True},
            "pipeline-parallel-size": 2,
        },
        "speculative-config",
    ),
]

FINE: list[Arguments] = [
    {},
    {"enable-auto-tool-choice": True, "tool-call-parser": "hermes"},
    {"enable-lora": True, "lora-modules": [{"name": "a", "path": "model/a"}, "b=model/b"]},
    {"max-model-len": "4k", "max-num-batched-tokens": 2048},
    {"max-model-len": "4k", "max-num-batched-tokens": 4096, "enable-chunked-prefill": False},
    {"spec-method": "eagle3", "spec-model": "model/draft", "spec-tokens": 3, "async-scheduling": True},
    {"speculative-config": {"method": "deepseek_mtp"}, "async-scheduling": True},
    # vLLM 0.32 no longer refuses speculation with a pipeline.
    {"speculative-config": {"method": "ngram", "num_speculative_tokens": 3}, "pipeline-parallel-size": 2},
]


@pytest.mark.parametrize(("args", "name"), ODD)
def test_arguments_that_vllm_refuses_together_are_found(args: Arguments, name: str) -> None:
    assert [odd.name for odd in argument_conflicts(args)] == [name]


@pytest.mark.parametrize("args", FINE)
def test_arguments_that_go_together_are_left_alone(args: Arguments) -> None:
    assert list(argument_conflicts(args)) == []
