from __future__ import annotations

from engine_images.memory import DEFAULT_KV_CACHE_BYTES, PROCESS_BYTES, estimate_memory, weight_bytes
from engine_images.model import Weights


def test_weights_served_in_float32_take_twice_their_size_in_bfloat16() -> None:
    stored = Weights(elements={"BF16": 100})
    assert weight_bytes(stored, "float32") == 2 * weight_bytes(stored, "bfloat16") == 400


def test_weights_keep_their_size_when_vllm_chooses_the_dtype() -> None:
    assert weight_bytes(Weights(elements={"F32": 10, "BF16": 10}), "auto") == 60


def test_whole_numbers_and_quantized_weights_are_not_converted() -> None:
    assert weight_bytes(Weights(elements={"I8": 10, "I32": 10, "F8_E4M3": 10}), "float32") == 60


def test_an_engine_needs_its_process_its_cache_and_its_weights() -> None:
    weights = Weights(elements={"F32": 10})
    assert estimate_memory(weights, {}) == PROCESS_BYTES + DEFAULT_KV_CACHE_BYTES + 40
    assert estimate_memory(weights, {"kv-cache-memory-bytes": 7}) == PROCESS_BYTES + 7 + 40
