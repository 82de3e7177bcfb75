"""How much memory an engine needs, against what its accelerators have. Pure arithmetic before anything is started.

Weights are counted from the headers of their files, as vLLM spreads them over accelerators; the KV cache as vLLM 0.32
counts it (`v1/kv_cache_interface.py`): whole blocks for each layer, keys and values for the heads of one
tensor-parallel rank. What is besides these on a GPU vLLM measures at start; here it is counted by the sizes that vLLM
measures with, and guessed where its code says none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, prod

from engine_images.accelerators import DEVICES, GIBIBYTE, MEBIBYTE, Accelerator
from engine_images.arguments.serving import ONLINE, Parallel, Serving, serving
from engine_images.arguments.values import AUTO, Arguments
from engine_images.model import Weights
from engine_images.shape import ModelShape
from tidegate.core.model import Value

PROCESS_BYTES = 1280 * MEBIBYTE
"""What vLLM 0.32 needs on a CPU besides weights and KV cache: measured 0.95 GiB with weights of 1.4 MB, and
1.27 GiB with weights of 0.5 GiB, where 0.25 GiB are pages of the file itself."""

DEFAULT_KV_CACHE_BYTES = 128 * MEBIBYTE
"""Small on purpose: a region runs two engines, and a machine several regions."""

KV_CACHE, UTILIZATION = "kv-cache-memory-bytes", "gpu-memory-utilization"
"""vLLM's arguments for the size of the KV cache, and for the share of a GPU that an engine may take."""

BYTES_PER_DTYPE = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
"""As in vLLM's `--dtype`; any other value (`auto`) keeps the weights as they are stored."""

_BITS_STORED = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16}
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""What vLLM converts to the dtype that it computes in."""


def estimate_memory(weights: Weights, args: Arguments) -> int:
    """Bytes that an engine with these weights and these arguments of vLLM is expected to need."""
    return PROCESS_BYTES + kv_cache_bytes(args) + weight_bytes(weights, str(args.get("dtype", "auto")))


def kv_cache_bytes(args: Arguments) -> int:
    """The size of the KV cache: as the spec says, or small enough for several engines on one machine."""
    return serving(args).kv_cache_bytes or DEFAULT_KV_CACHE_BYTES


def on_shared_gpus(args: Arguments) -> Arguments:
    """The same for an engine that shares its GPUs: a small KV cache of fixed size, unless they say how large it is."""
    return args if {KV_CACHE, UTILIZATION} & args.keys() else {**args, KV_CACHE: SHARED_KV_CACHE_BYTES}


def host_bytes(gpus: int) -> int:
    """Bytes of the machine's own memory that an engine on so many GPUs is expected to need."""
    return HOST_BYTES + gpus * HOST_RANK_BYTES


def weight_bytes(weights: Weights, dtype: str) -> int:
    """Bytes of the weights once loaded: floats take the size of `dtype`, everything else stays as stored."""
    serving = BYTES_PER_DTYPE.get(dtype)
    return sum(count * element_size(stored, serving) for stored, count in weights.elements.items())


def element_size(stored: str, serving: int | None) -> int:
    """Bytes of one number that is stored as `stored` and, when it is a float, served in `serving` bytes."""
    if serving is not None and stored in FLOATS:
        return serving
    # What is not listed is 8 bits wide or packed into 8 bits: BOOL, I8, U8, F8_E4M3, ...
    return _BITS_STORED.get(stored, 8) // 8


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


CONTEXT_BYTES = 1 * GIBIBYTE
"""What a GPU's driver, libraries and allocator hold besides any tensor."""
GRAPH_LAYER_BYTES = 256 * 1024
"""One layer in one CUDA graph, in device memory. A guess that no measurement of ours stands behind."""
LEAST_GRAPH_BYTES = 1 * MEBIBYTE
"""`_MIN_PER_GRAPH_BYTES` of `v1/worker/gpu/cudagraph_utils.py`: vLLM counts no graph below it."""
COLLECTIVE_BYTES = 512 * MEBIBYTE
"""Buffers for the exchange between ranks, when there are several."""
SHARED_KV_CACHE_BYTES = 1 * GIBIBYTE
"""On a GPU that several engines share: four of them, of a small model, fit the smallest that is known here."""
HOST_BYTES = 2 * GIBIBYTE
"""The server in front of an engine on GPUs, in the machine's memory. A guess that no measurement of ours stands behind,
as the next one."""
HOST_RANK_BYTES = 4 * GIBIBYTE
"""The process of each GPU, in the machine's memory: CUDA's libraries, and pages of the weights while they are read."""


class Model(Value):
    """A model as far as its memory goes."""

    shape: ModelShape
    tensors: tuple[Tensor, ...]
    draft: Model | None = None
    """The model that guesses tokens for it."""


class Footprint(Value):
    """Bytes on each accelerator, term by term."""

    weights: int
    answer: int
    """The KV cache of one answer of the greatest length; vLLM does not start with less."""
    cache: int | None
    """The KV cache that the settings fix; None when it gets what is left."""
    activations: int
    """What lives while the largest batch passes a layer."""
    sampling: int
    """Logits of every answer, and the copies that a token is drawn from."""
    graphs: int
    """CUDA graphs."""
    collectives: int
    """Buffers for the exchange between ranks."""
    process: int
    """On a GPU the driver's context; on a CPU everything that is neither weights nor KV cache."""
    available: int
    """What the engine may take."""

    @property
    def working(self) -> int:
        """Everything besides weights, KV cache and the process itself."""
        return self.activations + self.sampling + self.graphs + self.collectives

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
    weights = _weights(model, wanted)
    return Footprint(
        weights=weights - min(wanted.cpu_offload_bytes, weights),
        answer=_answer(model, wanted, accelerator, tokens, reading),
        cache=fixed,
        activations=0 if on_cpu else int(reading * token_bytes(model.shape, wanted)),
        sampling=0 if on_cpu else _sampling(model.shape, wanted, answers),
        graphs=0 if on_cpu or eager else graph_bytes(model.shape, wanted, accelerator),
        collectives=COLLECTIVE_BYTES if wanted.parallel.accelerators > 1 and not on_cpu else 0,
        process=PROCESS_BYTES if on_cpu else CONTEXT_BYTES,
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


def token_bytes(shape: ModelShape, wanted: Serving) -> float:
    """What one token of a batch takes while it passes a layer.

    vLLM measures the peak by `GPUModelRunner.profile_run`, with `max_num_batched_tokens` tokens. Counted here: the
    residual stream, the layer's input and output and a norm's, and the wider of the layer's two halves: queries, keys,
    values and what attention makes of them; or gate, up and their product, for each expert that sees the token.
    """
    attention = 2 * (shape.heads + shape.kv_heads) * shape.head_size
    inside = 3 * shape.intermediate
    if shape.experts:
        # `fused_experts_impl` keeps a result of the model's width for each of a token's experts too.
        each = 3 * (shape.expert_intermediate or shape.intermediate) + shape.hidden * wanted.parallel.tensor
        inside = (shape.experts_per_token or 1) * each
    numbers = 4 * shape.hidden + max(attention, inside) / wanted.parallel.tensor
    return numbers * _BYTES.get(served_dtype(wanted, shape), 2.0)


def _sampling(shape: ModelShape, wanted: Serving, answers: int) -> int:
    """`Sampler` of `v1/worker/gpu/sample/sampler.py`: logits as computed, in 32 bits, and probabilities in 32 bits."""
    return int((_BYTES.get(served_dtype(wanted, shape), 2.0) + 4 + 4) * answers * shape.vocabulary)


DENSE_UNTIL = 256
"""Sizes of captured batches are 8 tokens apart below it, and 16 from it on."""


def capture_sizes(wanted: Serving, accelerator: Accelerator) -> tuple[int, ...]:
    """Tokens of each batch for which vLLM captures CUDA graphs: `VllmConfig._set_cudagraph_sizes`."""
    reading, answers = batch_sizes(wanted, accelerator)
    query = 1 + (wanted.speculation.tokens or 0 if wanted.speculation else 0)
    usual = 1024 if accelerator is Accelerator.B200 else 512
    largest = min(wanted.graphs.largest or min(answers * query * 2, usual), reading)
    if wanted.graphs.sizes is not None:
        return tuple(sorted({size for size in wanted.graphs.sizes if size <= reading}))
    sizes = {size for size in (1, 2, 4) if size <= largest}
    sizes |= set(range(8, min(largest + 1, DENSE_UNTIL), 8)) | set(range(DENSE_UNTIL, largest + 1, 16))
    sizes |= {size for size in (reading, answers) if size <= largest}
    return tuple(sorted(sizes))


def graph_bytes(shape: ModelShape, wanted: Serving, accelerator: Accelerator) -> int:
    """CUDA graphs: they share one pool as large as the largest batch needs, and each holds its own kernels.

    vLLM estimates as much before it sizes its KV cache (`GPUModelRunner.profile_cudagraph_memory`): the first capture,
    and for each further one what the second took.
    """
    sizes, graphs = capture_sizes(wanted, accelerator), wanted.graphs
    _, answers = batch_sizes(wanted, accelerator)
    count = len(sizes) * graphs.piecewise + sum(size <= answers for size in sizes) * graphs.full
    if not count:
        return 0
    each = max(LEAST_GRAPH_BYTES, GRAPH_LAYER_BYTES * ceil(shape.layers / wanted.parallel.pipeline))
    return int(max(sizes) * token_bytes(shape, wanted)) + count * each
