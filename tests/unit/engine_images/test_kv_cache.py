"""The arithmetic of the KV cache, against what real engines said of theirs and what is known of large models."""

from __future__ import annotations

import pytest
from fakes.big_models import DEEPSEEK, LLAMA_8B, LLAMA_70B, MIXTURE

from engine_images.accelerators import Accelerator
from engine_images.arguments.model import ArgumentValue
from engine_images.arguments.serving import Serving, serving
from engine_images.kv_cache import answer_bytes, bytes_per_token, cache_tokens
from engine_images.shape import ModelShape, shape_of

SMOLLM2 = {
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "head_dim": 64,
    "dtype": "bfloat16",
}
CPU = Accelerator.CPU


def wanted(**args: ArgumentValue) -> Serving:
    return serving({name.replace("_", "-"): value for name, value in args.items()})


@pytest.mark.parametrize(("layers", "blocks", "tokens", "concurrency"), [(30, 22, 2816, 5.5), (90, 7, 896, 1.75)])
def test_real_engines_counted_the_same_blocks(layers: int, blocks: int, tokens: int, concurrency: float) -> None:
    # SmolLM2-135M-Instruct, and the same with 90 layers, on vLLM 0.32 with block_size="128", dtype float32
    # and 134217728 bytes. Its cache_config_info: num_gpu_blocks="22"; its log: "CPU KV cache size: 2,816 tokens,
    # Maximum concurrency for 512 tokens per request: 5.50x" and "896 tokens, ... 1.75x".
    shape, asked = shape_of(SMOLLM2 | {"num_hidden_layers": layers}), wanted(dtype="float32", max_model_len=512)
    assert cache_tokens(asked, shape, CPU, 134217728) == blocks * 128 == tokens
    assert 134217728 // (answer_bytes(asked, shape, CPU, tokens=512, reading=2048) // 4) == blocks
    assert tokens / 512 == concurrency


@pytest.mark.parametrize(
    ("config", "args", "kibibytes_per_token"),
    [
        (LLAMA_8B, {}, 128),
        (LLAMA_8B, {"kv_cache_dtype": "fp8"}, 64),
        (LLAMA_8B, {"tensor_parallel_size": 4}, 32),
        # Eight heads for sixteen ranks: each rank keeps a whole one.
        (LLAMA_8B, {"tensor_parallel_size": 16}, 16),
        (LLAMA_70B, {}, 320),
        (MIXTURE, {}, 96),
        # 576 numbers for a token and a layer, whatever the number of ranks.
        (DEEPSEEK, {}, 68.625),
        (DEEPSEEK, {"tensor_parallel_size": 8}, 68.625),
    ],
)
def test_bytes_of_a_token(
    config: dict[str, object], args: dict[str, ArgumentValue], kibibytes_per_token: float
) -> None:
    shape = shape_of(config)
    assert shape.layers * bytes_per_token(wanted(**args), shape) == kibibytes_per_token * 1024


def test_a_stage_of_a_pipeline_keeps_its_own_layers_only() -> None:
    shape = shape_of(LLAMA_70B)
    whole = answer_bytes(wanted(), shape, Accelerator.H100, tokens=8192, reading=8192)
    part = answer_bytes(wanted(pipeline_parallel_size=4), shape, Accelerator.H100, tokens=8192, reading=8192)
    assert part * 4 == whole


def test_a_layer_with_a_window_forgets_what_lies_before_it() -> None:
    config = LLAMA_8B | {"sliding_window": 1024, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5}
    shape = shape_of(config | {"num_hidden_layers": 30})
    assert (shape.window, shape.window_layers) == (1024, 25)
    full = answer_bytes(wanted(), shape.model_copy(update={"window_layers": 0}), CPU, tokens=131072, reading=2048)
    windowed = answer_bytes(wanted(), shape, CPU, tokens=131072, reading=2048)
    # Five full layers of 1024 blocks; 25 of 25 blocks (1023 + 2048 tokens) and one to spare.
    assert windowed / full == pytest.approx((5 * 1024 + 25 * 25) / (30 * 1024))


def test_a_window_that_is_switched_off_is_none() -> None:
    config = LLAMA_8B | {"sliding_window": 1024, "use_sliding_window": False}
    assert shape_of(config).window_layers == 0


def test_layers_with_a_state_keep_nothing_for_a_token() -> None:
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 8
    hybrid = shape_of(LLAMA_8B | {"layer_types": kinds})
    every = shape_of(LLAMA_8B)
    assert _answer(hybrid) * 4 == _answer(every)


def test_a_model_in_32_bits_is_served_in_16_unless_the_spec_says_otherwise() -> None:
    shape = shape_of(LLAMA_8B | {"dtype": "float32"})
    assert bytes_per_token(wanted(), shape) * 2 == bytes_per_token(wanted(dtype="float32"), shape)


def _answer(shape: ModelShape) -> int:
    return answer_bytes(wanted(), shape, CPU, tokens=4096, reading=2048)
