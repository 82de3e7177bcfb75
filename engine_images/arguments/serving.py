"""The arguments that tidegate itself reasons about, in types: parallelism, lengths, memory, adapters, quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

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

    @property
    def accelerators(self) -> int:
        """How many accelerators an engine takes."""
        return prod((self.tensor, self.pipeline, self.data, self.prefill_context))


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
    lora: tuple[tuple[str, str], ...]
    """Name and path of each adapter that is loaded at start."""
    lora_enabled: bool
    max_loras: int
    max_lora_rank: int
    draft: str | None
    """Where the model is that guesses tokens for it."""


def serving(args: Arguments) -> Serving:
    """The arguments in types; they must have been checked."""
    read = _Reader(args)
    return Serving(
        parallel=Parallel(
            tensor=read.count("tensor-parallel-size") or 1,
            pipeline=read.count("pipeline-parallel-size") or 1,
            data=read.count("data-parallel-size") or 1,
            prefill_context=read.count("prefill-context-parallel-size") or 1,
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
        lora=tuple(_adapters(args.get("lora-modules"))),
        lora_enabled=args.get("enable-lora") is True,
        max_loras=read.count("max-loras") or 1,
        max_lora_rank=read.count("max-lora-rank") or DEFAULT_LORA_RANK,
        draft=_draft(args),
    )


class _Reader:
    """Arguments by name, each in the one type that its option has."""

    def __init__(self, args: Arguments) -> None:
        self._args = args

    def count(self, name: str) -> int | None:
        return read_count(self._args.get(name))

    def text(self, name: str) -> str | None:
        value = self._args.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str, otherwise: float) -> float:
        value = self._args.get(name)
        return float(value) if isinstance(value, int | float) else otherwise


def _adapters(value: ArgumentValue) -> Iterator[tuple[str, str]]:
    """As vLLM reads them: `name=path`, or a mapping."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            name, _, path = item.partition("=")
            yield name, path
        elif isinstance(item, dict):
            yield str(item.get("name", "")), str(item.get("path", ""))


_DRAFTLESS = ("ngram", "ngram_gpu", "suffix", "extract_hidden_states", "custom_class")
"""Methods of speculation that have no model."""


def _draft(args: Arguments) -> str | None:
    given = args.get("speculative-config")
    config = given if isinstance(given, dict) else {}
    draft = config.get("model", args.get("spec-model"))
    method = config.get("method", args.get("spec-method"))
    return draft if isinstance(draft, str) and method not in _DRAFTLESS else None
