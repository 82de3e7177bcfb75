"""What an engine needs on each of its accelerators, against what is there. Pure arithmetic before anything is started.

Weights and KV cache are counted; working memory and the process are rough upper guesses, because vLLM measures them
itself at start.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine_images.accelerators import DEVICES, GIBIBYTE, MEBIBYTE, Accelerator
from engine_images.arguments.serving import Serving
from engine_images.kv_cache import answer_bytes, served_dtype
from engine_images.memory import DEFAULT_KV_CACHE_BYTES, PROCESS_BYTES
from engine_images.shape import ModelShape
from engine_images.tensors import Tensor, adapter_bytes, rank_bytes
from tidegate.core.model import Value

CONTEXT_BYTES = 1 * GIBIBYTE
"""What a GPU's driver, libraries and allocator hold beside any tensor."""
GRAPH_BYTES = 1 * GIBIBYTE
"""CUDA graphs of a compiled model: 0.3 to 1.5 GiB in practice."""
COLLECTIVE_BYTES = 512 * MEBIBYTE
"""Buffers for the exchange between ranks, when there are several."""


class Model(Value):
    """A model as far as its memory goes."""

    shape: ModelShape
    tensors: tuple[Tensor, ...]
    draft: Model | None = None
    """The model that guesses tokens for it."""


class Footprint(Value):
    """Bytes on each accelerator."""

    weights: int
    answer: int
    """The KV cache of one answer of the greatest length; vLLM does not start with less."""
    cache: int | None
    """The KV cache that the settings fix; None when it gets what is left."""
    working: int
    process: int
    available: int
    """What the engine may take."""

    @property
    def needed(self) -> int:
        """The least that the engine starts with."""
        return self.weights + max(self.answer, self.cache or 0) + self.working + self.process

    @property
    def missing(self) -> int:
        """By how much it does not fit; negative when it does."""
        return self.needed - self.available


def footprint(
    model: Model, wanted: Serving, accelerator: Accelerator, *, tokens: int, eager: bool, machine_bytes: int
) -> Footprint:
    """What `wanted` needs for answers of up to `tokens` tokens.

    `machine_bytes` is the memory of the machine, which is what a CPU has.
    """
    on_cpu = accelerator is Accelerator.CPU
    reading, answers = batch_sizes(wanted, accelerator)
    memory = DEVICES[accelerator].memory_bytes or machine_bytes
    fixed = wanted.kv_cache_bytes or (DEFAULT_KV_CACHE_BYTES if on_cpu else None)
    # With a KV cache of fixed size vLLM does not keep to its share of the memory.
    share = 1.0 if fixed is not None else wanted.memory_utilization
    return Footprint(
        weights=_weights(model, wanted) - min(wanted.cpu_offload_bytes, _weights(model, wanted)),
        answer=_answer(model, wanted, accelerator, tokens, reading),
        cache=fixed,
        working=0 if on_cpu else _working(model.shape, wanted, reading, answers),
        process=PROCESS_BYTES if on_cpu else _process(wanted, eager=eager),
        available=int(memory * share),
    )


def batch_sizes(wanted: Serving, accelerator: Accelerator) -> tuple[int, int]:
    """Tokens read at once and answers written at once, as `EngineArgs.get_batch_defaults` has them."""
    memory = DEVICES[accelerator].memory_bytes
    ranks = wanted.parallel.tensor * wanted.parallel.pipeline
    if memory is None:
        tokens, answers = 2048 * ranks, 128 * ranks
    elif memory >= 160 * GIBIBYTE:
        tokens, answers = 16384, 1024
    elif memory >= 70 * GIBIBYTE and accelerator is not Accelerator.A100_80:
        tokens, answers = 8192, 1024
    else:
        tokens, answers = 2048, 256
    return wanted.max_num_batched_tokens or tokens, wanted.max_num_seqs or answers


def _weights(model: Model, wanted: Serving) -> int:
    drafted = _weights(model.draft, wanted) if model.draft else 0
    own = rank_bytes(model.tensors, model.shape, wanted, served_dtype(wanted, model.shape))
    return own + drafted + adapter_bytes(model.tensors, wanted)


def _answer(model: Model, wanted: Serving, accelerator: Accelerator, tokens: int, reading: int) -> int:
    models: Sequence[Model] = (model, model.draft) if model.draft else (model,)
    return sum(answer_bytes(wanted, each.shape, accelerator, tokens=tokens, reading=reading) for each in models)


def _working(shape: ModelShape, wanted: Serving, reading: int, answers: int) -> int:
    """Activations of one layer for a full batch, and the logits of every answer with a copy for sampling."""
    numbers = reading * (8 * shape.hidden + 2 * shape.intermediate / wanted.parallel.tensor)
    return int(2 * numbers + 2 * 4 * answers * shape.vocabulary)


def _process(wanted: Serving, *, eager: bool) -> int:
    collectives = COLLECTIVE_BYTES if wanted.parallel.accelerators > 1 else 0
    return CONTEXT_BYTES + collectives + (0 if eager else GRAPH_BYTES)
