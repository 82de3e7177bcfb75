"""How much memory an engine needs, against what its accelerators have. Pure arithmetic before anything is started.

Weights are counted from the headers of their files, as vLLM spreads them over accelerators; the KV cache as vLLM 0.32
counts it (`v1/kv_cache_interface.py`): whole blocks for each layer, keys and values for the heads of one
tensor-parallel rank. All else on a GPU vLLM measures at start: here it is one reserve.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, prod

from engine_images.accelerators import DEVICES, GIBIBYTE, MEBIBYTE, Accelerator
from engine_images.arguments.serving import ONLINE, Serving
from engine_images.arguments.values import AUTO
from engine_images.shape import ModelShape
from tidegate.core.model import Value

PROCESS_BYTES = 1280 * MEBIBYTE
"""What vLLM 0.32 needs on a CPU besides weights and KV cache: measured 0.95 GiB with weights of 1.4 MB, and
1.27 GiB with weights of 0.5 GiB, where 0.25 GiB are pages of the file itself."""

RESERVE_BYTES, RESERVE_PART = 1536 * MEBIBYTE, 16
"""What is besides weights and KV cache on a GPU, where no measurement of ours stands behind it: so much, or the 16th
part of its memory where that is more. The driver's context, activations, logits, CUDA graphs and buffers between ranks:
vLLM's own batches, which decide about them, grow with the memory of the GPU."""

DEFAULT_KV_CACHE_BYTES = 128 * MEBIBYTE
"""Small on purpose: a region runs two engines, and a machine several regions."""
HOST_BYTES = 2 * GIBIBYTE
"""The server in front of an engine on GPUs, in the machine's memory. A guess that no measurement of ours stands behind,
as the next one."""
HOST_RANK_BYTES = 4 * GIBIBYTE
"""The process of each GPU, in the machine's memory: CUDA's libraries, and pages of the weights while they are read."""

BATCH_TOKENS = 2048
"""Tokens that vLLM reads at once on a CPU and on small GPUs; a layer with a window keeps more where it is more."""

BLOCK_TOKENS = {Accelerator.CPU: 128}
"""Tokens in one block where vLLM's platform has a default of its own."""
DEFAULT_BLOCK_TOKENS = 16

FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes of what vLLM converts to the dtype that it computes in."""
_WHOLE_NUMBERS = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2}
"""What is not listed is 8 bits wide or packed into 8 bits: BOOL, I8, U8, F8_E4M3, ..."""
_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
"""As in vLLM's `--dtype`; any other value (`auto`) keeps the weights as they are stored."""
_PACKED_BYTES = {"fp8": 1.0, "int8": 1.0, "int4": 0.5, "nvfp4": 0.5625, "turboquant": 1.0, "ultraquant": 0.5625}
"""By how the name of a `--kv-cache-dtype` begins. nvfp4 holds a scale of 8 bits for each 16 values."""
_FP8_DS_MLA_BYTES = 656
"""`fp8_ds_mla`: 512 values of 8 bits, four scales of 32 bits, 64 values of 16 bits for RoPE."""

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.\d+\.")


@dataclass(frozen=True)
class Tensor:
    """One tensor, told from the header of its file."""

    name: str
    dtype: str
    """As safetensors writes it: `BF16`."""
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    def bytes_in(self, dtype: str) -> int:
        """Once loaded: a float takes the size of `dtype`, everything else stays as stored."""
        stored = FLOATS.get(self.dtype)
        size = _WHOLE_NUMBERS.get(self.dtype, 1) if stored is None else _BYTES.get(dtype, stored)
        return self.elements * size

    @property
    def in_layer(self) -> bool:
        """Whether each layer has one; embeddings and the output layer are there once."""
        return LAYER.search(self.name) is not None


def rank_bytes(tensors: Iterable[Tensor], wanted: Serving, dtype: str) -> int:
    """Bytes of weights on each accelerator, as if everything were cut evenly: what does not fit so, never fits."""
    # Experts are dealt out, or cut, over all ranks, data-parallel ones too.
    ranks = {False: wanted.tensor, True: wanted.tensor * wanted.data * wanted.prefill_context}
    each = (_tensor_bytes(tensor, wanted, dtype) / ranks[_is_expert(tensor)] for tensor in tensors)
    return int(sum(each) / wanted.pipeline)


def _tensor_bytes(tensor: Tensor, wanted: Serving, dtype: str) -> float:
    quantized = ONLINE.get(wanted.quantization or "")
    is_matrix = tensor.dtype in FLOATS and tensor.in_layer and len(tensor.shape) >= 2
    if quantized and is_matrix and (wanted.quantization != "experts_int8" or _is_expert(tensor)):
        return tensor.elements * quantized
    return tensor.bytes_in(dtype)


def _is_expert(tensor: Tensor) -> bool:
    return ".experts." in tensor.name


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
    heads = max(1, shape.kv_heads // wanted.tensor)
    return 2 * heads * shape.head_size * element_bytes(wanted, shape)


def block_tokens(wanted: Serving, accelerator: Accelerator) -> int:
    """Tokens of one block."""
    return wanted.block_size or BLOCK_TOKENS.get(accelerator, DEFAULT_BLOCK_TOKENS)


def answer_bytes(wanted: Serving, shape: ModelShape, accelerator: Accelerator, *, tokens: int) -> int:
    """The KV cache of one prompt and answer of `tokens` tokens.

    vLLM refuses to start unless this much is free on every accelerator.
    """
    block = block_tokens(wanted, accelerator)
    full_layers = shape.layers - shape.window_layers - shape.state_layers
    blocks = full_layers * ceil(tokens / block)
    if shape.window and shape.window_layers:
        kept = min(shape.window - 1 + (wanted.max_num_batched_tokens or BATCH_TOKENS), tokens)
        blocks += shape.window_layers * (ceil(kept / block) + 1)
    stage = ceil(shape.layers / wanted.pipeline) / shape.layers if shape.layers else 1
    return int(blocks * block * bytes_per_token(wanted, shape) * stage)


class Footprint(Value):
    """Bytes on each accelerator, term by term."""

    weights: int
    answer: int
    """The KV cache of one answer of the greatest length; vLLM does not start with less."""
    cache: int | None
    """The KV cache that the settings fix; None when it gets what is left."""
    reserve: int
    """Everything that is neither weights nor KV cache."""
    available: int
    """What the engine may take."""

    @property
    def needed(self) -> int:
        """The least that the engine starts with."""
        return self.weights + max(self.answer, self.cache or 0) + self.reserve

    @property
    def missing(self) -> int:
        """By how much it does not fit; negative when it does."""
        return self.needed - self.available


def footprint(
    tensors: Sequence[Tensor],
    shape: ModelShape,
    wanted: Serving,
    accelerator: Accelerator,
    *,
    tokens: int,
    machine_bytes: int,
) -> Footprint:
    """What `wanted` needs for answers of up to `tokens` tokens.

    `machine_bytes` is the memory of the machine, which is what a CPU has.
    """
    device = DEVICES[accelerator].memory_bytes
    memory = device or machine_bytes
    fixed = wanted.kv_cache_bytes or (None if device else DEFAULT_KV_CACHE_BYTES)
    # With a KV cache of fixed size vLLM does not keep to its share of the memory.
    share = 1.0 if fixed is not None else wanted.memory_utilization
    weights = rank_bytes(tensors, wanted, served_dtype(wanted, shape))
    return Footprint(
        weights=weights - min(int(wanted.cpu_offload_gib * GIBIBYTE), weights),
        answer=answer_bytes(wanted, shape, accelerator, tokens=tokens),
        cache=fixed,
        reserve=max(RESERVE_BYTES, device // RESERVE_PART) if device else PROCESS_BYTES,
        available=int(memory * share),
    )
