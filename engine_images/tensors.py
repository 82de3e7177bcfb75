"""One tensor of a model's weights, and how vLLM spreads it over accelerators."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod

from engine_images.arguments.serving import Parallel, Serving
from engine_images.memory import BYTES_PER_DTYPE, FLOATS, element_size
from engine_images.pinned.quantization import ONLINE
from engine_images.shape import ModelShape

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d+)\.")
_EXPERT = re.compile(r"\.experts\.")
_KEY_OR_VALUE = re.compile(r"\.(k_proj|v_proj)\.")
_WHOLE = re.compile(r"\.(q_a_proj|kv_a_proj_with_mqa|gate)\.weight|\.router\.")
"""Matrices that every rank holds: the way down into a latent, and the router of a mixture of experts."""
_HEAD = re.compile(r"(^|\.)(lm_head|output)\.")


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

    @property
    def layer(self) -> int | None:
        """The number of its layer; None for embeddings, the output layer and what else is there once."""
        match = LAYER.search(self.name)
        return int(match[1]) if match else None


def rank_bytes(tensors: Iterable[Tensor], shape: ModelShape, wanted: Serving, dtype: str) -> int:
    """Bytes of weights on the fullest accelerator.

    Approximated: every matrix is cut evenly, which vLLM does to all but a few; norms and biases are whole on every
    rank; a stage of the pipeline has its share of layers and the larger of embedding and output layer.
    """
    layers = edges = head = 0.0
    for tensor in tensors:
        size = _tensor_bytes(tensor, wanted, dtype) / _parts(tensor, shape, wanted.parallel)
        if tensor.layer is not None:
            layers += size
        elif _HEAD.search(tensor.name):
            head += 0 if shape.tied else size
        else:
            edges += size
    stages = wanted.parallel.pipeline
    if stages == 1:
        return int(layers + edges + head)
    share = ceil(shape.layers / stages) / shape.layers if shape.layers else 1 / stages
    return int(layers * share + max(edges, head))


def adapter_bytes(tensors: Iterable[Tensor], wanted: Serving) -> int:
    """Room that vLLM sets aside for adapters of the largest allowed rank: two narrow matrices for each matrix."""
    if not wanted.lora_enabled:
        return 0
    matrices = (t.shape for t in tensors if t.layer is not None and len(t.shape) == 2 and not _EXPERT.search(t.name))
    width = sum(rows / wanted.parallel.tensor + columns for rows, columns in matrices)
    return int(2 * width * wanted.max_lora_rank * wanted.max_loras / wanted.parallel.pipeline)


def _tensor_bytes(tensor: Tensor, wanted: Serving, dtype: str) -> float:
    quantized = ONLINE.get(wanted.quantization or "")
    if quantized and tensor.dtype in FLOATS and tensor.layer is not None and len(tensor.shape) >= 2:
        is_expert = _EXPERT.search(tensor.name) is not None
        if wanted.quantization != "experts_int8" or is_expert:
            return tensor.elements * quantized
    return tensor.elements * element_size(tensor.dtype, BYTES_PER_DTYPE.get(dtype))


def _parts(tensor: Tensor, shape: ModelShape, parallel: Parallel) -> int:
    """Into how many parts, on different accelerators, vLLM cuts it."""
    if _EXPERT.search(tensor.name):
        # Experts are dealt out, or cut, over all ranks, data-parallel ones too.
        return parallel.tensor * parallel.data * parallel.prefill_context
    if len(tensor.shape) < 2 or _WHOLE.search(tensor.name):
        return 1
    if _KEY_OR_VALUE.search(tensor.name) and shape.kv_heads:
        return min(parallel.tensor, shape.kv_heads)
    return parallel.tensor
