"""The memory of an engine: weights, KV cache, and what is left of its accelerators."""

from __future__ import annotations

import pytest
from fakes.engines.models import DEEPSEEK, LLAMA_8B, LLAMA_70B, MIXTURE, SMOLLM2, tensors_of
from hypothesis import given
from hypothesis import strategies as st

from engine_images.accelerators import DEVICES, GIBIBYTE, Accelerator
from engine_images.arguments.serving import Serving, serving
from engine_images.arguments.values import ArgumentValue
from engine_images.memory import (
    PROCESS_BYTES,
    Footprint,
    Tensor,
    answer_bytes,
    block_tokens,
    bytes_per_token,
    footprint,
    rank_bytes,
)
from engine_images.shape import ModelShape, shape_of

CPU = Accelerator.CPU


def wanted(**args: ArgumentValue) -> Serving:
    return serving({name.replace("_", "-"): value for name, value in args.items()})


@pytest.mark.parametrize(("layers", "blocks", "tokens", "concurrency"), [(30, 22, 2816, 5.5), (90, 7, 896, 1.75)])
def test_real_engines_counted_the_same_blocks(layers: int, blocks: int, tokens: int, concurrency: float) -> None:
    # SmolLM2-135M-Instruct, and the same with 90 layers, on vLLM 0.32 with block_size="128", dtype float32
    # and 134217728 bytes. Its cache_config_info: num_gpu_blocks="22"; its log: "CPU KV cache size: 2,816 tokens,
    # Maximum concurrency for 512 tokens per request: 5.50x" and "896 tokens, ... 1.75x".
    shape, asked = shape_of(SMOLLM2 | {"num_hidden_layers": layers}), wanted(dtype="float32", max_model_len=512)
    block = block_tokens(asked, CPU)
    assert 134217728 // int(block * bytes_per_token(asked, shape) * layers) == blocks
    assert blocks * block == tokens
    assert 134217728 // (answer_bytes(asked, shape, CPU, tokens=512) // 4) == blocks
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
    whole = answer_bytes(wanted(), shape, Accelerator.H100, tokens=8192)
    part = answer_bytes(wanted(pipeline_parallel_size=4), shape, Accelerator.H100, tokens=8192)
    assert part * 4 == whole


def test_a_layer_with_a_window_forgets_what_lies_before_it() -> None:
    config = LLAMA_8B | {"sliding_window": 1024, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5}
    shape = shape_of(config | {"num_hidden_layers": 30})
    assert (shape.window, shape.window_layers) == (1024, 25)
    full = answer_bytes(wanted(), shape.model_copy(update={"window_layers": 0}), CPU, tokens=131072)
    windowed = answer_bytes(wanted(), shape, CPU, tokens=131072)
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


def _answer(shape: ModelShape) -> int:
    return answer_bytes(wanted(), shape, CPU, tokens=4096)


Model = dict[str, object]
TINY = LLAMA_8B | {"num_hidden_layers": 4}
SMALL, LARGE, EXPERTS = LLAMA_8B, LLAMA_70B, MIXTURE


def weights(model: Model, **args: ArgumentValue) -> int:
    return rank_bytes(tensors_of(model), wanted(**args), "bfloat16")


def on(accelerator: Accelerator, model: Model, *, tokens: int = 8192, **args: ArgumentValue) -> Footprint:
    tensors, shape = tuple(tensors_of(model)), shape_of(model)
    return footprint(tensors, shape, wanted(**args), accelerator, tokens=tokens, machine_bytes=64 * GIBIBYTE)


def test_weights_of_known_models() -> None:
    assert weights(SMALL) / 2 == pytest.approx(8.03e9, rel=0.01)
    assert weights(LARGE) / 2 == pytest.approx(70.6e9, rel=0.01)
    assert weights(EXPERTS) / 2 == pytest.approx(30.5e9, rel=0.01)


def test_parallelism_cuts_everything() -> None:
    assert weights(LARGE, tensor_parallel_size=8, pipeline_parallel_size=2) == weights(LARGE) // 16


def test_experts_are_spread_over_data_parallel_ranks_too() -> None:
    spread = weights(EXPERTS, data_parallel_size=4)
    experts = 2 * 48 * 128 * 3 * 2048 * 768
    assert spread == pytest.approx(weights(EXPERTS) - experts * 3 / 4, rel=0.001)


def test_weights_quantized_while_they_are_loaded_leave_the_embeddings_as_they_are() -> None:
    ends = 2 * 2 * 128256 * 8192
    assert weights(LARGE, quantization="fp8") == pytest.approx(ends + (weights(LARGE) - ends) / 2, rel=0.001)


def test_vllm_may_take_its_share_only() -> None:
    memory = DEVICES[Accelerator.L4].memory_bytes or 0
    assert on(Accelerator.L4, SMALL).available == int(memory * 0.92)
    assert on(Accelerator.L4, SMALL, gpu_memory_utilization=0.5).available == memory // 2
    # A KV cache of fixed size switches the share off.
    assert on(Accelerator.L4, SMALL, kv_cache_memory_bytes="1G").available == memory


def test_all_else_on_a_gpu_is_one_reserve() -> None:
    alone = on(Accelerator.H100, SMALL)
    assert alone.reserve == (DEVICES[Accelerator.H100].memory_bytes or 0) // 16
    assert alone.needed == alone.weights + alone.answer + alone.reserve


def test_a_cpu_has_the_memory_of_its_machine() -> None:
    here = on(Accelerator.CPU, SMALL)
    assert here.needed == weights(SMALL) + max(here.answer, 128 * 1024 * 1024) + PROCESS_BYTES
    assert here.available == 64 * GIBIBYTE
    assert here.cache == 128 * 1024 * 1024


@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 4]),
    dtype=st.sampled_from(["auto", "float32"]),
    cache=st.sampled_from(["auto", "fp8"]),
    tokens=st.integers(min_value=1, max_value=131072),
)
def test_more_accelerators_and_fewer_bits_never_need_more(
    tensor: int, pipeline: int, dtype: str, cache: str, tokens: int
) -> None:
    less = {"dtype": dtype, "kv_cache_dtype": cache, "tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
    more = less | {"tensor_parallel_size": 2 * tensor}
    one, two = (on(Accelerator.H100, TINY, tokens=tokens, **args) for args in (less, more))
    assert two.weights <= one.weights
    assert two.answer <= one.answer
    narrow = on(Accelerator.H100, TINY, tokens=tokens, **(less | {"kv_cache_dtype": "fp8"}))
    assert narrow.answer <= one.answer
    assert on(Accelerator.H100, TINY, tokens=tokens + 1, **less).answer >= one.answer


def test_floats_take_the_size_that_they_are_served_in_and_all_else_its_own() -> None:
    stored = [Tensor(name, name, (10,)) for name in ("F32", "BF16", "I8", "I32", "F8_E4M3")]
    for dtype, floats in {"float32": 80, "bfloat16": 40, "auto": 60}.items():
        assert sum(tensor.bytes_in(dtype) for tensor in stored) == floats + 10 + 40 + 10
