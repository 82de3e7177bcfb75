"""How many bytes an answer keeps in the KV cache, told from the model's shape. Pure arithmetic.

As vLLM 0.32 counts (`v1/kv_cache_interface.py`): whole blocks for each layer, keys and values for the heads of one
tensor-parallel rank. Layers with a window keep the window and what is being read; layers with a state keep
a state of fixed size, which is not counted here.
"""

from __future__ import annotations

from math import ceil

from engine_images.accelerators import Accelerator
from engine_images.arguments.serving import Serving
from engine_images.arguments.values import AUTO
from engine_images.shape import ModelShape

BLOCK_TOKENS = {Accelerator.CPU: 128}
"""Tokens in one block where vLLM's platform has a default of its own."""
DEFAULT_BLOCK_TOKENS = 16

_BYTES = {"float32": 4.0, "float": 4.0, "float16": 2.0, "half": 2.0, "bfloat16": 2.0}
_PACKED_BYTES = {"fp8": 1.0, "int8": 1.0, "int4": 0.5, "nvfp4": 0.5625, "turboquant": 1.0, "ultraquant": 0.5625}
"""By how the name of a `--kv-cache-dtype` begins. nvfp4 holds a scale of 8 bits for each 16 values."""
_FP8_DS_MLA_BYTES = 656
"""`fp8_ds_mla`: 512 values of 8 bits, four scales of 32 bits, 64 values of 16 bits for RoPE."""


def element_bytes(wanted: Serving, shape: ModelShape) -> float:
    """Bytes of one number in the KV cache."""
    name = served_dtype(wanted, shape) if wanted.kv_cache_dtype == AUTO else wanted.kv_cache_dtype
    packed = next((size for start, size in _PACKED_BYTES.items() if name.startswith(start)), 2.0)
    return _BYTES.get(name, packed)


def served_dtype(wanted: Serving, shape: ModelShape) -> str:
    """What vLLM computes in: what the spec says, else what the model says, with 32 bits narrowed to 16 for `auto`."""
    if wanted.dtype != AUTO:
        return wanted.dtype
    return "bfloat16" if shape.dtype in (None, "float32", "float") else shape.dtype


def bytes_per_token(wanted: Serving, shape: ModelShape) -> float:
    """One token in one layer on one accelerator."""
    if shape.latent:
        # The latent serves all heads, so every tensor-parallel rank keeps all of it.
        return (
            _FP8_DS_MLA_BYTES if wanted.kv_cache_dtype == "fp8_ds_mla" else shape.latent * element_bytes(wanted, shape)
        )
    heads = max(1, shape.kv_heads // wanted.parallel.tensor)
    return 2 * heads * shape.head_size * element_bytes(wanted, shape)


def block_tokens(wanted: Serving, accelerator: Accelerator) -> int:
    """Tokens of one block."""
    return wanted.block_size or BLOCK_TOKENS.get(accelerator, DEFAULT_BLOCK_TOKENS)


def answer_bytes(wanted: Serving, shape: ModelShape, accelerator: Accelerator, *, tokens: int, reading: int) -> int:
    """The KV cache of one prompt and answer of `tokens` tokens, of which at most `reading` are read at once.

    vLLM refuses to start unless this much is free on every accelerator.
    """
    block = block_tokens(wanted, accelerator)
    full_layers = shape.layers - shape.window_layers - shape.state_layers
    blocks = full_layers * ceil(tokens / block)
    if shape.window and shape.window_layers:
        kept = min(shape.window - 1 + reading, tokens)
        blocks += shape.window_layers * (ceil(kept / block) + 1)
    stage = ceil(shape.layers / wanted.parallel.pipeline) / shape.layers if shape.layers else 1
    return int(blocks * block * bytes_per_token(wanted, shape) * stage)


def cache_tokens(wanted: Serving, shape: ModelShape, accelerator: Accelerator, cache_bytes: int) -> int:
    """How many tokens fit into a cache of so many bytes, in whole blocks; for models without windows."""
    block = block_tokens(wanted, accelerator)
    size = block * bytes_per_token(wanted, shape) * max(1, shape.layers - shape.state_layers)
    return int(cache_bytes // size) * block
