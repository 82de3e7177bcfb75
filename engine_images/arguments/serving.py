"""The arguments that tidegate itself reasons about, in types: parallelism, lengths, memory, adapters, quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from pydantic import JsonValue

from engine_images.arguments.values import AUTO, Arguments, ArgumentValue, read_count
from tidegate.core.model import Value

ONLINE = {
    "fp8": 1.0,
    "fp8_per_tensor": 1.0,
    "fp8_per_block": 1.0,
    "fp8_per_channel": 1.0,
    "int8_per_channel_weight_only": 1.0,
    "experts_int8": 1.0,
    "mxfp8": 1.03,
    "nvfp4_per_token": 0.5625,
}
"""Methods that quantize weights stored in 16 bits while they are loaded, and what is left of each number, in bytes;
the scales of the last two included."""


QUANTIZATION = ("quantization", "quantization-config")
"""The arguments that say how weights are quantized."""

FAILS_ON_CPU = ("fp8", "fp8_per_tensor", "mxfp8")
"""Methods of `ONLINE` that were seen to fail while vLLM 0.32 loads weights on a CPU."""

LOADERS = {"safetensors": None, "runai_streamer": "runai-model-streamer", "fastsafetensors": "fastsafetensors"}
"""Values of `load-format` that read safetensors and nothing else: the others may unpickle what a model version brings.
Each with the package that vLLM needs for it."""


def loaders_in(has: Callable[[str], bool]) -> tuple[str, ...]:
    """The packages of `LOADERS` that an environment has, which is asked for each by its name."""
    return tuple(package for package in LOADERS.values() if package and has(package))


DEFAULT_MEMORY_UTILIZATION = 0.92
"""The share of a GPU's memory that vLLM 0.32 takes."""
DEFAULT_LORA_RANK = 16

SHORTHANDS = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
"""Arguments that say the same as a key of `speculative-config`."""


class Parallel(Value):
    """How the model is spread over accelerators."""

    tensor: int = 1
    """Each layer is cut into so many parts."""
    pipeline: int = 1
    """The layers are dealt out to so many stages."""
    data: int = 1
    """So many copies of the model, behind one address."""
    prefill_context: int = 1
    """A long prompt is read by so many ranks at once."""
    expert: bool = False
    """Experts of a mixture are dealt out over tensor and data ranks instead of being cut."""

    @property
    def accelerators(self) -> int:
        """How many accelerators an engine takes."""
        return prod((self.tensor, self.pipeline, self.data, self.prefill_context))


class LoraAdapter(Value):
    """An adapter that is loaded at start and answers under its own name."""

    name: str
    path: str
    base: str | None = None


class Speculation(Value):
    """Tokens are guessed by something cheap and checked by the model."""

    method: str | None
    """None when vLLM tells it from the draft model."""
    draft: str | None
    """Where the draft model is."""
    tokens: int | None
    adaptive: bool


class CudaGraphs(Value):
    """Which CUDA graphs vLLM is told to capture."""

    full: bool = True
    """One graph of the whole model for each size of a batch that writes answers."""
    piecewise: bool = True
    """One between any two attention layers, for each size of any other batch."""
    sizes: tuple[int, ...] | None = None
    """Tokens of each batch; None for vLLM's own list."""
    largest: int | None = None
    """Where vLLM's own list ends; None for its own bound."""


class Serving(Value):
    """The arguments in types; None where vLLM finds the value out itself."""

    parallel: Parallel
    dtype: str
    quantization: str | None
    max_model_len: int | None
    """None also for `auto`."""
    length_fits: bool
    """vLLM takes the greatest length that fits into memory: `max-model-len: auto`."""
    max_num_batched_tokens: int | None
    max_num_seqs: int | None
    load_format: str | None
    """One of `LOADERS`; None where the spec does not say."""
    kv_cache_dtype: str
    kv_cache_bytes: int | None
    memory_utilization: float
    cpu_offload_bytes: int
    block_size: int | None
    chunked_prefill: bool | None
    graphs: CudaGraphs
    lora: tuple[LoraAdapter, ...]
    lora_enabled: bool
    max_loras: int
    max_lora_rank: int
    speculation: Speculation | None
    pools: bool
    """It gives embeddings, scores or classes and no text."""


def serving(args: Arguments) -> Serving:
    """The arguments in types; they must have been checked."""
    read = _Reader(args)
    return Serving(
        parallel=Parallel(
            tensor=read.count("tensor-parallel-size") or 1,
            pipeline=read.count("pipeline-parallel-size") or 1,
            data=read.count("data-parallel-size") or 1,
            prefill_context=read.count("prefill-context-parallel-size") or 1,
            expert=read.flag("enable-expert-parallel") or False,
        ),
        dtype=read.text("dtype") or AUTO,
        quantization=read.text("quantization"),
        max_model_len=read.count("max-model-len"),
        length_fits=read.text("max-model-len") == AUTO,
        max_num_batched_tokens=read.count("max-num-batched-tokens"),
        max_num_seqs=read.count("max-num-seqs"),
        load_format=read.text("load-format"),
        kv_cache_dtype=read.text("kv-cache-dtype") or AUTO,
        kv_cache_bytes=read.count("kv-cache-memory-bytes"),
        memory_utilization=read.number("gpu-memory-utilization", DEFAULT_MEMORY_UTILIZATION),
        cpu_offload_bytes=int(read.number("cpu-offload-gb", 0) * 1024**3),
        block_size=read.count("block-size"),
        chunked_prefill=read.flag("enable-chunked-prefill"),
        graphs=_graphs(args),
        lora=tuple(_adapters(args.get("lora-modules"))),
        lora_enabled=read.flag("enable-lora") or False,
        max_loras=read.count("max-loras") or 1,
        max_lora_rank=read.count("max-lora-rank") or DEFAULT_LORA_RANK,
        speculation=_speculation(args),
        pools=read.text("runner") == "pooling",
    )


class _Reader:
    """Arguments by name, each in the one type that its option has."""

    def __init__(self, args: Arguments) -> None:
        self._args = args

    def count(self, name: str) -> int | None:
        return read_count(self._args.get(name))

    def flag(self, name: str) -> bool | None:
        value = self._args.get(name)
        return value if isinstance(value, bool) else None

    def text(self, name: str) -> str | None:
        value = self._args.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str, otherwise: float) -> float:
        value = self._args.get(name)
        return float(value) if isinstance(value, int | float) else otherwise


_MODES = {
    "NONE": (False, False),
    "PIECEWISE": (False, True),
    "FULL": (True, False),
    "FULL_DECODE_ONLY": (True, False),
    "FULL_AND_PIECEWISE": (True, True),
}
"""`CUDAGraphMode` of `config/compilation.py`: full graphs, piecewise ones."""
_MODE_OF_LEVEL = {0: "NONE", 1: "PIECEWISE"}
"""`OPTIMIZATION_LEVEL_TO_CONFIG` of `config/vllm.py`; the levels above capture both."""


def _graphs(args: Arguments) -> CudaGraphs:
    """By `compilation-config`, its shorthands and the optimization level."""
    given = args.get("compilation-config")
    config = given if isinstance(given, dict) else {}
    level = read_count(args.get("optimization-level"))
    usual = _MODE_OF_LEVEL.get(2 if level is None else level, "FULL_AND_PIECEWISE")
    said = config.get("cudagraph_mode")
    full, piecewise = _MODES.get(said.upper() if isinstance(said, str) else usual, (True, True))
    if args.get("enforce-eager") is True:
        full = piecewise = False
    sizes = args.get("cudagraph-capture-sizes", config.get("cudagraph_capture_sizes"))
    counts = [read_count(size) for size in (sizes if isinstance(sizes, list) else [sizes])]
    return CudaGraphs(
        full=full,
        piecewise=piecewise,
        sizes=tuple(count for count in counts if count) or None,
        largest=read_count(args.get("max-cudagraph-capture-size", config.get("max_cudagraph_capture_size"))),
    )


def _adapters(value: ArgumentValue) -> Iterator[LoraAdapter]:
    """As vLLM reads them: `name=path`, or a mapping."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            name, _, path = item.partition("=")
            yield LoraAdapter(name=name, path=path)
        elif isinstance(item, dict):
            yield LoraAdapter(
                name=str(item.get("name", "")), path=str(item.get("path", "")), base=_text(item.get("base_model_name"))
            )


def _speculation(args: Arguments) -> Speculation | None:
    given = args.get("speculative-config", {})
    config: dict[str, JsonValue] = dict(given) if isinstance(given, dict) else {}
    for argument, key in SHORTHANDS.items():
        if argument in args:
            config.setdefault(key, args[argument])
    if not config:
        return None
    return Speculation(
        method=_text(config.get("method")),
        draft=_text(config.get("model")),
        tokens=read_count(config.get("num_speculative_tokens")),
        adaptive=config.get("enable_adaptive_verification") is True,
    )


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
