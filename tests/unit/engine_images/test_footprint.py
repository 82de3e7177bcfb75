"""What is needed on each accelerator, for models whose sizes everybody knows."""

from __future__ import annotations

import pytest
from fakes.big_models import LLAMA_8B, LLAMA_70B, MIXTURE, big_model
from hypothesis import given
from hypothesis import strategies as st

from engine_images.accelerators import DEVICES, GIBIBYTE, Accelerator
from engine_images.arguments.model import ArgumentValue
from engine_images.arguments.serving import Serving, serving
from engine_images.footprint import Footprint, Model, footprint
from engine_images.tensors import rank_bytes

TINY = big_model(LLAMA_8B | {"num_hidden_layers": 4})
SMALL, LARGE, EXPERTS = big_model(LLAMA_8B), big_model(LLAMA_70B), big_model(MIXTURE)


def wanted(**args: ArgumentValue) -> Serving:
    return serving({name.replace("_", "-"): value for name, value in args.items()})


def weights(model: Model, **args: ArgumentValue) -> int:
    return rank_bytes(model.tensors, model.shape, wanted(**args), "bfloat16")


def on(accelerator: Accelerator, model: Model, *, tokens: int = 8192, **args: ArgumentValue) -> Footprint:
    return footprint(model, wanted(**args), accelerator, tokens=tokens, eager=False, machine_bytes=64 * GIBIBYTE)


def test_weights_of_known_models() -> None:
    assert weights(SMALL) / 2 == pytest.approx(8.03e9, rel=0.01)
    assert weights(LARGE) / 2 == pytest.approx(70.6e9, rel=0.01)
    assert weights(EXPERTS) / 2 == pytest.approx(30.5e9, rel=0.01)


def test_tensor_parallelism_cuts_all_but_the_norms() -> None:
    assert weights(LARGE, tensor_parallel_size=8) == pytest.approx(weights(LARGE) / 8, rel=0.001)


def test_more_ranks_than_key_heads_keep_copies_of_them() -> None:
    assert weights(SMALL, tensor_parallel_size=32) > weights(SMALL) / 32


def test_a_stage_of_a_pipeline_has_its_layers_and_one_of_the_two_ends() -> None:
    ends = 2 * 128256 * 8192
    layers = weights(LARGE) - 2 * ends
    assert weights(LARGE, pipeline_parallel_size=4) == pytest.approx(layers / 4 + ends, rel=0.001)


@pytest.mark.parametrize("dealt_out", [True, False])
def test_experts_are_spread_over_data_parallel_ranks_too(dealt_out: bool) -> None:
    spread = weights(EXPERTS, data_parallel_size=4, enable_expert_parallel=dealt_out)
    experts = 2 * 48 * 128 * 3 * 2048 * 768
    assert spread == pytest.approx(weights(EXPERTS) - experts * 3 / 4, rel=0.001)


def test_weights_quantized_while_they_are_loaded_leave_the_embeddings_as_they_are() -> None:
    ends = 2 * 2 * 128256 * 8192
    assert weights(LARGE, quantization="fp8") == pytest.approx(ends + (weights(LARGE) - ends) / 2, rel=0.001)


def test_tied_embeddings_are_kept_once() -> None:
    tied = big_model(LLAMA_8B | {"tie_word_embeddings": True})
    assert weights(SMALL) - weights(tied) == 2 * 128256 * 4096


def test_eight_billion_weights_fit_one_h100_and_seventy_do_not() -> None:
    assert on(Accelerator.H100, SMALL).missing < 0
    assert on(Accelerator.H100, LARGE).missing > 60 * GIBIBYTE
    assert on(Accelerator.H100, LARGE, tensor_parallel_size=2).missing < 3 * GIBIBYTE
    assert on(Accelerator.H100, LARGE, tensor_parallel_size=4).missing < 0


def test_vllm_may_take_its_share_only() -> None:
    memory = DEVICES[Accelerator.L4].memory_bytes or 0
    assert on(Accelerator.L4, SMALL).available == int(memory * 0.92)
    assert on(Accelerator.L4, SMALL, gpu_memory_utilization=0.5).available == memory // 2
    # A KV cache of fixed size switches the share off.
    assert on(Accelerator.L4, SMALL, kv_cache_memory_bytes="1G").available == memory


def test_adapters_and_a_draft_model_take_room_too() -> None:
    alone = on(Accelerator.H100, SMALL)
    adapted = on(Accelerator.H100, SMALL, enable_lora=True, max_loras=4, max_lora_rank=64)
    # Rank 64 for every matrix of the 8B model: 168 million numbers an adapter.
    assert adapted.weights - alone.weights == pytest.approx(4 * 2 * 168e6, rel=0.02)
    drafted = SMALL.model_copy(update={"draft": SMALL})
    both = on(Accelerator.H100, drafted)
    assert (both.weights, both.answer) == (2 * alone.weights, 2 * alone.answer)


def test_a_cpu_has_the_memory_of_its_machine() -> None:
    here = on(Accelerator.CPU, SMALL)
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
